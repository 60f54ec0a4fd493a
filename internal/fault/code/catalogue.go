package code

// catalogue has every code. Its texts are for a reader who has only the code: the error itself names the object and the
// statements to run.
var catalogue = []Entry{
	{
		Internal, "unexpected",
		"an unexpected error: a bug of the program, or an unknown answer of a server, a file system or a network",
		"try again with --verbose; if it persists, report the message with the output of `embedsidecar version` and `embedsidecar check`",
		operations,
	},
	{
		Timeout, "timeout", "the command did not finish within --timeout, or within a limit of its own",
		"the message names what is missing; wait longer, or see `embedsidecar status`", operations + "#vectors-are-late",
	},
	{Interrupted, "interrupted", "a signal ended the command", "run it again: completed work is kept", operations},
	{
		NoMatch, "nothing matched", "no object has that name or key, or no row passes the filter",
		"check names with `embedsidecar status`, keys with `embedsidecar tasks list`", operations + "#a-row-seems-wrong",
	},
	{
		Failed, "checks failed",
		"a check, a verification or a test found a problem. The command itself worked",
		"the lines above name each problem and what helps", operations,
	},

	{
		Usage, "command line", "a command, flag, argument or value does not exist or is not valid",
		"`embedsidecar help COMMAND` lists what it takes", "docs/commands.md",
	},
	{
		Configuration, "configuration", "a flag, a variable or the file has an unknown setting or a wrong value",
		"`embedsidecar config validate` reports every mistake with its place; `embedsidecar config show --resolved` shows where each value comes from",
		"docs/configuration.md",
	},
	{
		NotFound, "a file is missing", "a plugin, model, library or file is not in any of the searched folders",
		"the error lists the folders; `embedsidecar plugins list` and `embedsidecar models list` show what is available",
		"docs/running-plugins.md",
	},
	{
		NoPipeline, "no such pipeline", "no pipeline of that name is set up or configured",
		"`embedsidecar status` lists their names; `embedsidecar init` sets up what is configured", "docs/configuration.md",
	},
	{
		NoModel, "no such model", "the plugin does not offer a model of that name",
		"`embedsidecar plugins info NAME` lists the models of a plugin", "docs/models.md",
	},
	{
		TwoDatabases, "two databases", "--database-url and --stream-url name different databases",
		"use the same server and database in both", "docs/configuration.md",
	},

	{
		NotSetUp, "not set up",
		"the database has no schema embedsidecar, or another version of it, or no pipeline for this slot",
		"`embedsidecar init` sets up what is configured, and upgrades an older schema; `embedsidecar init --show-sql` prints the SQL for someone else to run",
		"README.md#your-own-table",
	},
	{
		WALLevel, "wal_level is not logical", "the WAL does not contain what logical decoding needs",
		"ALTER SYSTEM SET wal_level = 'logical'; and restart the server. RDS: rds.logical_replication = 1; Cloud SQL: cloudsql.logical_decoding = on; Azure: wal_level = LOGICAL",
		"README.md#your-own-table",
	},
	{
		Pgvector, "no pgvector", "the extension vector is missing in this database or on this server, or is too old",
		"CREATE EXTENSION vector; as a superuser, or as the owner of the database if the extension is trusted. If the server does not have it, install its package first",
		"README.md#your-own-table",
	},
	{
		NoTable, "no such table", "the source table does not exist: dropped, renamed before the set-up, or in another schema",
		"check name and schema; `embedsidecar check` suggests similar names", operations + "#a-pipeline-waits",
	},
	{
		Table, "the table sends no changes",
		"the source is a view, an unlogged, temporary or system table, or hides rows from the role: its changes are not in the WAL, or rows would appear to be deleted",
		"name the table that holds the rows; for an unlogged table: ALTER TABLE ... SET LOGGED;", "docs/promises.md#limits",
	},
	{
		Key, "no replica identity",
		"the table has no primary key and no other replica identity. If it were published, its UPDATE and DELETE would fail",
		"ALTER TABLE ... ADD PRIMARY KEY (...); or, with a unique index over NOT NULL columns, ALTER TABLE ... REPLICA IDENTITY USING INDEX ...;",
		"docs/promises.md#limits",
	},
	{
		Destination, "the destination does not fit",
		"the column or table for the vectors does not exist, has another type, or is NOT NULL, generated, unlogged or not made for chunks",
		"name a destination that does not exist: `embedsidecar init` creates it", "docs/configuration.md",
	},
	{
		Width, "the vectors do not fit",
		"the model's vectors have another width or kind than the destination or its index accepts",
		"choose a model of that width, or change the model of the pipeline: embedsidecar model change", "docs/search.md#types-and-indexes",
	},
	{
		Taken, "the destination is taken",
		"another pipeline writes to it, or it holds vectors of someone else",
		"name another destination; or remove that pipeline with `embedsidecar uninstall NAME`; or replace all vectors with --overwrite",
		operations + "#taking-a-pipeline-away",
	},
	{
		Expression, "text or filter refused",
		"the expression of text, where or context is not SQL over one row of the table, has the wrong type, or reads something that cannot be watched (other tables, system columns)",
		"try it with SELECT ... FROM the table; cast text with ::text", "docs/configuration.md",
	},
	{
		Pipeline, "the pipeline does not fit the database",
		"the configuration, or the set-up, contradicts the database; the error names both",
		"change one of them; `embedsidecar check` reports all contradictions", operations + "#a-pipeline-waits",
	},
	{
		Publication, "the publication does not fit",
		"it is missing, does not publish a table, operation or column, or was made by someone else",
		"run `embedsidecar init` with the same pipelines, as the owner of the tables; or name another publication (publication.name)",
		operations + "#the-publication-is-missing",
	},
	{
		OldServer, "the server is too old", "PostgreSQL before 14 does not support the replication protocol that embedsidecar needs",
		"upgrade the server, then run `embedsidecar init --adopt`", "docs/promises.md#limits",
	},
	{
		Copied, "another server",
		"this database was restored or copied from another server, with its queue and checkpoint",
		"to use the copy on its own, run `embedsidecar init --adopt` with its pipelines configured",
		operations + "#a-restored-or-copied-database",
	},
	{
		NoText, "nothing to embed",
		"no table that the role may read has rows and a column with sentences",
		"insert rows, grant SELECT, or name a table with --table, --columns and --into-table", "README.md#your-own-table",
	},
	{
		Join, "a table cannot be joined",
		"the columns of on are missing or cannot be compared, the WAL would not contain their old values, several rows match where only one may, or the table is a view or partitioned",
		"run the SQL of the hint, or change the join", "docs/joins.md",
	},

	{
		SlotLost, "the slot has a gap",
		"the slot was dropped, moved, or the server removed WAL it still needed, and on_lost is stop",
		"run it once with --set slot.on_lost=reconcile: it creates a new slot and compares every row; unchanged rows cost nothing",
		operations + "#the-slot-was-lost",
	},
	{
		OtherSlot, "the slot belongs to someone else",
		"a slot of this name belongs to another database, output plugin or program; slot names are unique per server",
		"choose another name for all commands: --slot NAME, or EMBEDSIDECAR_SLOT", operations + "#the-slot-is-held",
	},
	{
		NoSlotFree, "no slot is free", "max_replication_slots or max_wal_senders of the server are used up",
		"raise them and restart the server, or drop unused slots: SELECT slot_name, active FROM pg_replication_slots;",
		operations + "#the-slot-is-held",
	},
	{
		Locked, "could not obtain lock", "someone holds a lock on a table, type or row for longer than the command waits (2 s, with retries)",
		"try again; SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity; shows who holds it",
		operations + "#the-checkpoint-does-not-move",
	},
	{InitRunning, "another init runs", "only one set-up can change a database at a time", "wait for it to end", operations},
	{
		Conflict, "already exists or in use", "a name is taken, or another session holds what the command needs exclusively",
		"choose another name, or end the session that holds it: the error names it", operations,
	},
	{
		SlotHeld, "the slot is in use", "another connection streams it, usually another sidecar; a second one stands by",
		"wait until it stops. If its client is dead: SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'embedsidecar';",
		operations + "#the-slot-is-held",
	},
	{
		Awaited, "commits would wait for the stream",
		"synchronous_standby_names lets the server choose any session that streams, so it may choose a sidecar instead of a standby",
		"name the standbys in synchronous_standby_names, or set it to ANY 1 (*), and reload; the sidecar then continues",
		operations + "#the-stream-is-interrupted",
	},

	{
		Unreachable, "no server answers", "the server is down, the address is wrong, or a firewall blocks the connection",
		"check host and port of the URL; `embedsidecar config show --resolved` shows where they come from", unreached,
	},
	{
		Starting, "the server starts or stops", "it does not accept connections now", "wait; run retries", unreached,
	},
	{
		Full, "no connection is free", "max_connections, a limit of the role or of the database, or max_wal_senders is used up",
		"end unused sessions, or raise the limit", unreached,
	},
	{
		Auth, "authentication failed", "unknown role, wrong password, or pg_hba.conf rejects the role from here",
		"check role and password (URL, *_FILE, PGPASSWORD, .pgpass) and pg_hba.conf", unreached,
	},
	{
		NoDatabase, "no such database", "the server has no database of that name",
		"list them: SELECT datname FROM pg_database;", unreached,
	},
	{
		TLS, "TLS failed", "the server does not support TLS, or its certificate is not trusted",
		"check sslmode and sslrootcert of the URL", unreached,
	},
	{
		Standby, "the server is a standby", "the server is a standby or read-only: it cannot hold the queue",
		"give the URL of the primary, or several hosts: postgres://host1,host2/database", unreached,
	},
	{
		Pooler, "the connection goes through a pooler", "a pooler in front of the server does not support replication",
		"use --stream-url with the address of the server itself", unreached,
	},
	{
		BadURL, "the URL cannot be read", "it is neither postgres://user:password@host:port/database nor key=value pairs",
		"write : / ? # @ and % inside a password as %3A %2F %3F %23 %40 and %25", unreached,
	},
	{
		NoAnswer, "no connection", "the server or the sidecar does not answer, or answers in an unknown way",
		"see the message; `embedsidecar check` tries the same connection", unreached,
	},

	{
		Permission, "not permitted", "the role lacks a privilege, or does not own the object that it would change",
		"let an owner run the statements that the error prints, or all that a pipeline needs: `embedsidecar roles --grants`, run as the owner",
		"docs/roles.md",
	},
	{
		Untrusted, "not safe to use",
		"an object belongs to a role that is not trusted: its triggers and functions would run with the sidecar's privileges",
		"run as a role with fewer privileges, or name the owner with --trust-owner", "docs/security.md",
	},
	{
		RLS, "row-level security hides rows",
		"policies hide rows of the table from the role; they would appear to be deleted",
		"ALTER ROLE ... BYPASSRLS; or a policy that lets the role see every row", "docs/roles.md",
	},

	{
		PluginStart, "the plugin does not start", "its process ended or did not answer before it was ready; the error has its last output",
		"`embedsidecar plugins verify NAME` tries it without a database", operations + "#the-plugin-is-down",
	},
	{
		Checksum, "the checksum differs", "a program or a model is not the file that was pinned by its SHA-256",
		"if you changed it, pin the new sum; if not, find out who changed it", operations + "#the-checksum-differs",
	},
	{
		Embedder, "the embedder cannot work as configured", "a setting, key, model or library of the plugin is wrong or missing",
		"the message names it; `embedsidecar plugins verify NAME` tries again", operations + "#the-plugin-is-down",
	},
	{
		EmbedderBusy, "the embedder is not available", "it is down, overloaded, or limits the rate; the same call may work later",
		"wait; the work stays in the queue", operations + "#the-plugin-is-down",
	},
	{
		Crashed, "the embedder died", "the plugin's process ended while it processed texts: it ran out of memory, or a text crashed it",
		"lower --threads or workers.batch_rows, or give it more memory; a row that kills it becomes a dead letter",
		operations + "#the-plugin-is-down",
	},
	{
		Text, "a text cannot be embedded", "the plugin rejects it, or its answer cannot be used",
		"the message says why; `embedsidecar tasks list --state failed` names such rows", operations + "#dead-letters",
	},
}

const (
	operations = "docs/operations.md"
	unreached  = operations + "#the-database-cannot-be-reached"
)
