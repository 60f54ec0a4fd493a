package database

import (
	"errors"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Hint returns ways out of an error that came from Postgres, each a sentence or a statement, or nil when none is known.
// Errors that carry their own ways out (*Error here, those of package refusal) answer for themselves.
func Hint(err error) []string {
	var own interface{ Hints() []string }
	if errors.As(err, &own) {
		return own.Hints()
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	where, _, _ := strings.Cut(pg.Where, "\n")
	ours := strings.HasPrefix(where, `SQL function "`) // of one the schema is not told, and no trigger is one
	if strings.Contains(where, " function ") && !strings.Contains(where, " function embedsidecar.") && !ours {
		return []string{
			"it was raised by a trigger of the database: " + where,
			"our sessions have the search_path pg_catalog: let it name tables with their schema, or ALTER FUNCTION ... SET search_path = ...",
		}
	}
	if pg.Hint != "" && strings.HasPrefix(pg.Where, "PL/pgSQL function embedsidecar.") { // one of ours knows better
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
		return []string{"its owner, or you, drop first what is in the way: " + strings.ReplaceAll(pg.Detail, "\n", "; ")}
	}
	if OutOfTempFiles(pg) {
		return []string{
			"a statement wrote more to temporary files than temp_file_limit allows: raise it for this role (ALTER ROLE ... SET temp_file_limit = ..., by a superuser), or its work_mem",
		}
	}
	if hint, ok := hints[pg.Code]; ok {
		return hint
	}
	return nil
}

// OutOfTempFiles tells temp_file_limit from the other limits of the server, by the one word that is not translated.
func OutOfTempFiles(pg *pgconn.PgError) bool {
	return pg.Code == pgerrcode.ConfigurationLimitExceeded && strings.Contains(pg.Message, "temp_file_limit")
}

// Hints returns the ways out.
func (e *Error) Hints() []string { return e.Hint }

var hints = map[string][]string{
	pgerrcode.ObjectInUse: {
		"another sidecar holds the slot: SELECT slot_name, active_pid FROM pg_replication_slots WHERE active;",
		"a second sidecar stands by; end one that hangs with pg_terminate_backend(active_pid)",
	},
	pgerrcode.ObjectNotInPrerequisiteState: {
		"if wal_level is not logical: ALTER SYSTEM SET wal_level = 'logical'; and restart the server (RDS: rds.logical_replication = 1; Cloud SQL: cloudsql.logical_decoding = on; Azure: wal_level = LOGICAL)",
		"if the slot is lost: embedsidecar init makes a new one and compares every row",
	},
	pgerrcode.UndefinedObject: {
		"if the type vector is missing: CREATE EXTENSION vector; (superuser, or the owner of the database where the extension is trusted)",
		"if slot or publication is missing: embedsidecar init",
	},
	pgerrcode.UndefinedFunction: {"if it is one of pgvector's: CREATE EXTENSION vector; other functions need their schema in front, since search_path is pg_catalog"},
	pgerrcode.UndefinedTable:    {"run embedsidecar init if it is one of ours; embedsidecar check reports the others"},
	pgerrcode.InvalidSchemaName: {"run embedsidecar init"},
	pgerrcode.UndefinedColumn:   {"embedsidecar check names the pipelines whose columns have changed"},
	pgerrcode.ConfigurationLimitExceeded: {
		"raise max_replication_slots or max_wal_senders and restart the server; in use: SELECT slot_name, active FROM pg_replication_slots;",
	},
	pgerrcode.InsufficientPrivilege:  {"embedsidecar roles prints the grants that running needs; embedsidecar check says which one is missing"},
	pgerrcode.TooManyConnections:     {"raise max_connections or lower the number of workers"},
	pgerrcode.LockNotAvailable:       {"another session holds a lock on the table for longer than 2 s: try again, or see pg_locks and pg_stat_activity"},
	pgerrcode.QueryCanceled:          {"the server cancelled the statement: statement_timeout of the role, or pg_cancel_backend"},
	pgerrcode.DataException:          {"if the widths of vectors differ: the model's dims must be those of the destination column"},
	pgerrcode.DiskFull:               {"free space on the server; no change is lost"},
	pgerrcode.ReadOnlySQLTransaction: {"this server is a standby or read-only: give the URL of the primary"},
	pgerrcode.InvalidPassword:        {"check the password in the URL (or its *_FILE, .pgpass, PGPASSWORD)"},
}
