package problem

import (
	"errors"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

// answer explains a server error that no other package has explained.
type answer struct {
	state string // its SQLSTATE
	word  string // an untranslated word of its message; "": any message
	class Class
	code  code.Code // "": that of the class
	hints []string
}

// answers has entries with a word before those of the same SQLSTATE without one.
var answers = []answer{
	{pgerrcode.ObjectInUse, "", Conflict, code.SlotHeld, []string{
		"another sidecar holds the slot: SELECT slot_name, active_pid FROM pg_replication_slots WHERE active;",
		"a second sidecar stands by; end one that hangs with pg_terminate_backend(active_pid)",
	}},
	{pgerrcode.ObjectNotInPrerequisiteState, "wal_level", Usage, code.WALLevel, []string{
		"ALTER SYSTEM SET wal_level = 'logical'; and restart the server " +
			"(RDS: rds.logical_replication = 1; Cloud SQL: cloudsql.logical_decoding = on; Azure: wal_level = LOGICAL)",
	}},
	{pgerrcode.ObjectNotInPrerequisiteState, "", Usage, code.Pipeline, []string{
		"if the slot is lost: embedsidecar init makes a new one and compares every row",
	}},
	{pgerrcode.UndefinedObject, "", Internal, "", []string{
		"if the type vector is missing: CREATE EXTENSION vector; " +
			"(superuser, or the owner of the database where the extension is trusted)",
		"if slot or publication is missing: embedsidecar init",
	}},
	{pgerrcode.UndefinedFunction, "", Internal, "", []string{"if it is one of pgvector's: CREATE EXTENSION vector; " +
		"other functions need their schema in front, since search_path is pg_catalog"}},
	{pgerrcode.UndefinedTable, "embedsidecar.", NotSetUp, "", []string{"run embedsidecar init"}},
	{pgerrcode.UndefinedTable, "", Internal, "", []string{
		"run embedsidecar init if it is one of ours; embedsidecar check reports the others",
	}},
	{pgerrcode.InvalidSchemaName, "", NotSetUp, "", []string{"run embedsidecar init"}},
	{pgerrcode.UndefinedColumn, "", Internal, "", []string{
		"embedsidecar check names the pipelines whose columns have changed",
	}},
	{pgerrcode.ConfigurationLimitExceeded, "temp_file_limit", Internal, "", []string{
		"a statement wrote more to temporary files than temp_file_limit allows: raise it for this role " +
			"(ALTER ROLE ... SET temp_file_limit = ..., by a superuser), or its work_mem",
	}},
	{pgerrcode.ConfigurationLimitExceeded, "", Conflict, code.NoSlotFree, []string{
		"raise max_replication_slots or max_wal_senders and restart the server; " +
			"in use: SELECT slot_name, active FROM pg_replication_slots;",
	}},
	{pgerrcode.InsufficientPrivilege, "", Permission, "", []string{
		"embedsidecar roles prints the grants that running needs; embedsidecar check says which one is missing",
	}},
	{pgerrcode.TooManyConnections, "", Internal, code.Full, []string{
		"raise max_connections or lower the number of workers",
	}},
	{pgerrcode.LockNotAvailable, "", Conflict, code.Locked, []string{
		"another session holds a lock that this needs: try again, or see pg_locks and pg_stat_activity",
	}},
	{pgerrcode.QueryCanceled, "", Internal, "", []string{
		"the server cancelled the statement: statement_timeout of the role, or pg_cancel_backend",
	}},
	{pgerrcode.DataException, "", Internal, "", []string{
		"if the widths of vectors differ: the model's dims must be those of the destination column",
	}},
	{pgerrcode.DiskFull, "", Internal, "", []string{"free space on the server; no change is lost"}},
	{pgerrcode.ReadOnlySQLTransaction, "", Internal, code.Standby, []string{
		"this server is a standby or read-only: give the URL of the primary",
	}},
	{pgerrcode.InvalidPassword, "", Connect, "", []string{
		"check the password in the URL (or its *_FILE, .pgpass, PGPASSWORD)",
	}},
}

// answerOf returns the explanation of the server error in err.
func answerOf(err error) answer {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return answer{}
	}
	for _, a := range answers {
		if a.state == pg.Code && strings.Contains(pg.Message, a.word) {
			return a
		}
	}
	if pgerrcode.IsConnectionException(pg.Code) || pgerrcode.IsInvalidAuthorizationSpecification(pg.Code) {
		return answer{class: Connect}
	}
	return answer{}
}

// answerHints returns the hints for a server error, each a sentence or a statement.
func answerHints(err error) []string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return nil
	}
	where, _, _ := strings.Cut(pg.Where, "\n")
	ours := strings.HasPrefix(where, `SQL function "`) // for a SQL function it gives no schema, but no trigger is one
	if strings.Contains(where, " function ") && !strings.Contains(where, " function embedsidecar.") && !ours {
		return []string{
			"it was raised by a trigger of the database: " + where,
			"it runs with search_path = pg_catalog: qualify the names of its tables with their schema, " +
				"or ALTER FUNCTION ... SET search_path = ...",
		}
	}
	if pg.Hint != "" && strings.HasPrefix(pg.Where, "PL/pgSQL function embedsidecar.") { // our functions give better hints
		if !strings.HasPrefix(pg.Hint, "GRANT ") {
			return []string{pg.Hint}
		}
		sql := strings.Split(pg.Hint, "; ")
		for i := range sql {
			sql[i] += ";"
		}
		return sql
	}
	if pg.Code == pgerrcode.DependentObjectsStillExist {
		return []string{"drop the dependent objects first: " + strings.ReplaceAll(pg.Detail, "\n", "; ")}
	}
	return answerOf(err).hints
}
