package code

// catalogue has every code. What it says is for a person who has met the code and nothing else: the error itself names
// the thing, and brings along what to run.
var catalogue = []Entry{
	{
		Internal, "unexpected",
		"an error that the program did not foresee: a mistake of its own, or something that a server, a file system or a network answers for the first time",
		"try again with --verbose; if it stays, report the message, `embedsidecar version` and what `embedsidecar check` says",
		operations,
	},
	{
		Timeout, "not in time", "what was waited for did not come before --timeout, or before a limit of the command's own, was over",
		"the message says what was still missing; wait longer, or look at `embedsidecar status`", operations + "#vectors-are-late",
	},
	{Interrupted, "interrupted", "a signal ended the command", "run it again: what was done stays done", operations},
	{
		NoMatch, "nothing matched", "nothing is there by that name or key, or nothing that a filter lets through",
		"check names with `embedsidecar status`, keys with `embedsidecar tasks list`", operations + "#a-row-seems-wrong",
	},
	{
		Failed, "not as it should be",
		"a check, a verification or a test found something wrong. That it was found is no error of the program",
		"the lines above name each thing and its way out", operations,
	},

	{
		Usage, "command line", "a command, flag, argument or value that does not exist or does not fit",
		"`embedsidecar help COMMAND` lists what it takes", "docs/commands.md",
	},
	{
		Configuration, "configuration", "flags, variables or the file say something that is no setting, or no value of it",
		"`embedsidecar config validate` tells every mistake with its place, `embedsidecar config show --resolved` where each value comes from",
		"docs/configuration.md",
	},
	{
		NotFound, "a file is missing", "a plugin, model, library or file was looked for in the usual folders and is not there",
		"the error lists the folders; `embedsidecar plugins list` and `embedsidecar models list` show what there is",
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
		TwoDatabases, "two databases", "--database-url and --stream-url lead to different databases",
		"let both name the same server and database", "docs/configuration.md",
	},

	{
		NotSetUp, "not set up",
		"the database has no schema embedsidecar, or one of another version, or no pipeline of this slot",
		"`embedsidecar init` sets up what is configured, and brings an older schema to this version; `embedsidecar init --show-sql` prints it for somebody else to run",
		"README.md#your-own-table",
	},
	{
		WALLevel, "wal_level is not logical", "the server writes too little into its WAL for changes to be read from it",
		"ALTER SYSTEM SET wal_level = 'logical'; and restart the server. RDS: rds.logical_replication = 1; Cloud SQL: cloudsql.logical_decoding = on; Azure: wal_level = LOGICAL",
		"README.md#your-own-table",
	},
	{
		Pgvector, "no pgvector", "the extension vector is missing in this database or on this server, or too old for what is asked of it",
		"CREATE EXTENSION vector; as a superuser, or as the database's owner where the server trusts it. If the server does not have it, install its package first",
		"README.md#your-own-table",
	},
	{
		NoTable, "no such table", "the source table is not there: dropped, renamed before the set-up, or in another schema",
		"check name and schema; `embedsidecar check` names tables of like names", operations + "#a-pipeline-waits",
	},
	{
		Table, "the table sends no changes",
		"the source is a view, unlogged, temporary, of the system, or hides rows from the role: its changes are not in the WAL, or rows would be taken for deleted ones",
		"name the table that the rows are in; ALTER TABLE ... SET LOGGED; for an unlogged one", "docs/promises.md#limits",
	},
	{
		Key, "rows without a name",
		"the table has no primary key or other replica identity by which the WAL can name its rows. Published, its own UPDATE and DELETE would fail",
		"ALTER TABLE ... ADD PRIMARY KEY (...); or, with a unique index over NOT NULL columns, ALTER TABLE ... REPLICA IDENTITY USING INDEX ...;",
		"docs/promises.md#limits",
	},
	{
		Destination, "the destination does not fit",
		"the column or table for the vectors is not there, is of another kind than is needed, or is NOT NULL, generated, unlogged or without room for chunks",
		"name a destination that is not there yet: `embedsidecar init` makes it as it must be", "docs/configuration.md",
	},
	{
		Width, "the vectors do not fit",
		"the model makes vectors of another width or kind than the destination stores or an index takes",
		"choose a model of that width, or another destination, and another pipeline for it", "docs/search.md#types-and-indexes",
	},
	{
		Taken, "the destination is taken",
		"another pipeline writes to it, or it holds vectors that this pipeline did not write",
		"name another destination; or take that pipeline away with `embedsidecar uninstall NAME`; or make all vectors in it anew with --overwrite",
		operations + "#taking-a-pipeline-away",
	},
	{
		Expression, "text or filter refused",
		"the expression of text, where or context is no SQL over one row of the table, is of the wrong type, or reads something that cannot be watched (other tables, system columns)",
		"try it with SELECT ... FROM the table; cast text with ::text", "docs/configuration.md",
	},
	{
		Pipeline, "the pipeline does not fit the database",
		"what is configured, or was set up once, and what the database holds exclude each other; the error names both",
		"mend the one or the other; `embedsidecar check` tells all at once", operations + "#a-pipeline-waits",
	},
	{
		Publication, "the publication does not fit",
		"it is missing, lacks a table, leaves out operations or columns, or was made by somebody else",
		"as the owner of the tables: `embedsidecar init` with the same pipelines; or name another (publication.name)",
		operations + "#the-publication-is-missing",
	},
	{
		OldServer, "the server is too old", "PostgreSQL before 14 cannot send what is needed",
		"upgrade it; afterwards `embedsidecar init --adopt`", "docs/promises.md#limits",
	},
	{
		Copied, "another server",
		"this database was restored or copied from another server, whose queue and checkpoint came along",
		"if it shall live on its own: `embedsidecar init --adopt` with its pipelines configured",
		operations + "#a-restored-or-copied-database",
	},
	{
		NoText, "nothing to embed",
		"no table has both rows and a column with sentences in it that the role may read, so there is nothing to suggest and nothing to search",
		"insert rows, grant SELECT, or name what to embed with --table, --columns and --into-table", "README.md#your-own-table",
	},

	{
		SlotLost, "the slot has a gap",
		"the slot was dropped, moved, or the server removed WAL it still needed, and on_lost is stop",
		"start it once with --set slot.on_lost=reconcile: it makes a new slot and compares every row; rows whose text is the same cost nothing",
		operations + "#the-slot-was-lost",
	},
	{
		OtherSlot, "the slot is somebody else's",
		"a slot of this name exists and belongs to another database, plugin or program: all databases of a server share the names of slots",
		"choose another name, in every command: --slot NAME, or EMBEDSIDECAR_SLOT", operations + "#the-slot-is-held",
	},
	{
		NoSlotFree, "no slot is free", "max_replication_slots or max_wal_senders of the server are used up",
		"raise them and restart the server, or drop what nobody needs: SELECT slot_name, active FROM pg_replication_slots;",
		operations + "#the-slot-is-held",
	},
	{
		Locked, "a lock was not to be had", "somebody holds a lock on a table, type or row for longer than the command waits (2 s, with retries)",
		"try again; SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity; shows who holds it",
		operations + "#the-checkpoint-does-not-move",
	},
	{InitRunning, "another init runs", "only one set-up can change a database at a time", "wait for it to end", operations},
	{
		Conflict, "it is there already", "a name is taken, or something holds what the command needs for itself alone",
		"choose another name, or end what holds it: the error names it", operations,
	},
	{
		SlotHeld, "the slot is in use", "another connection streams it: mostly another sidecar, beside which a second one stands by",
		"wait for it to stop. If nobody is behind it any more: SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'embedsidecar';",
		operations + "#the-slot-is-held",
	},

	{
		Unreachable, "no server answers", "the server is down, the address is wrong, or a firewall is between",
		"check host and port of the URL; `embedsidecar config show --resolved` tells where they come from", unreached,
	},
	{
		Starting, "the server starts or stops", "it takes no sessions now", "wait; run tries again by itself", unreached,
	},
	{
		Full, "no connection is free", "max_connections, a limit of the role or of the database, or max_wal_senders is used up",
		"end sessions that nobody needs, or raise it", unreached,
	},
	{
		Auth, "not let in", "unknown role, wrong password, or pg_hba.conf does not let the role in from here",
		"check role and password (URL, *_FILE, PGPASSWORD, .pgpass) and pg_hba.conf", unreached,
	},
	{
		NoDatabase, "no such database", "the server has no database of that name",
		"SELECT datname FROM pg_database; lists them", unreached,
	},
	{
		TLS, "no encryption", "the server speaks no TLS where it is asked for, or its certificate is not trusted",
		"check sslmode and sslrootcert of the URL", unreached,
	},
	{
		Standby, "a standby", "the server is a standby or read-only: it cannot hold the queue",
		"give the URL of the primary, or several hosts: postgres://host1,host2/database", unreached,
	},
	{
		Pooler, "a pooler is in the way", "something between here and the server does not pass on what replication needs",
		"give a URL that leads to the server itself with --stream-url", unreached,
	},
	{
		BadURL, "the URL cannot be read", "it is neither postgres://user:password@host:port/database nor key=value pairs",
		"write : / ? # @ and % inside a password as %3A %2F %3F %23 %40 and %25", unreached,
	},
	{
		NoAnswer, "no connection", "the server or the sidecar that was asked answers in a way that nobody foresaw, or not at all",
		"the message has its words; `embedsidecar check` tries the same connection", unreached,
	},

	{
		Permission, "not permitted", "the role lacks a privilege, or does not own what it would change",
		"let an owner run the statements that the error prints, or all that a pipeline needs: `embedsidecar roles --grants`, run as the owner",
		"docs/roles.md",
	},
	{
		Untrusted, "not safe to use",
		"what would be used belongs to a role that nobody has said to trust: its triggers and functions would run with our rights",
		"run as a role that may do less, or name the owner with --trust-owner", "docs/security.md",
	},
	{
		RLS, "row-level security hides rows",
		"policies hide rows of the table from the role, which would be taken for deleted ones",
		"ALTER ROLE ... BYPASSRLS; or a policy that lets the role see every row", "docs/roles.md",
	},

	{
		PluginStart, "the plugin does not start", "its program ended or did not speak before it was ready; the error has what it wrote last",
		"`embedsidecar plugins verify NAME` tries it without a database", operations + "#the-plugin-is-down",
	},
	{
		Checksum, "the checksum differs", "a program or a model is not the file that was pinned by its SHA-256",
		"if you changed it, pin the new sum; if not, find out who did", operations + "#the-checksum-differs",
	},
	{
		Embedder, "the embedder cannot work as configured", "the plugin says that a setting, key, model or library is wrong or missing",
		"the message names it; `embedsidecar plugins verify NAME` tries again", operations + "#the-plugin-is-down",
	},
	{
		EmbedderBusy, "the embedder does not answer now", "it is down, overloaded, or limits the rate; the same call may work later",
		"wait; the queue keeps what is to be done", operations + "#the-plugin-is-down",
	},
	{
		Crashed, "the embedder died", "the plugin's process ended while it held texts: killed for memory, or by a text",
		"lower --threads or workers.batch_rows, or give it more memory; a row that kills it becomes a dead letter",
		operations + "#the-plugin-is-down",
	},
	{
		Text, "a text cannot be embedded", "the plugin refuses it, or its answer for it cannot be used",
		"the message says why; `embedsidecar tasks list --state failed` names such rows", operations + "#dead-letters",
	},
}

const (
	operations = "docs/operations.md"
	unreached  = operations + "#the-database-cannot-be-reached"
)
