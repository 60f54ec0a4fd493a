package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// The servers that are tested.
const (
	MinVersion = 140000
	MaxVersion = 190000
)

// Server is what the server says of itself and of the role.
type Server struct {
	Version         int
	WALLevel        string
	Standby         bool
	Keep            string // max_slot_wal_keep_size, as it is written
	KeepMB          int64  // -1: no limit
	Slots           int
	MaxSlots        int
	Senders         int
	MaxSenders      int
	Exists          bool   // the slot
	Streamed        bool   // someone reads the slot
	Vector          string // version of the extension; "": it is not installed
	VectorAvailable string // which version the server has; "": none
	VectorMay       bool   // the role may install it in this database
	Database        string
	Role            string
	Superuser       bool
	MayCreate       bool     // in the database
	Owns            bool     // the schema embedsidecar is there, and the role's to change
	HasPublic       bool     // there is a schema public
	TablesOnly      bool     // the server can be told to refuse views in the place of tables
	Emitters        []string // who may, of those that are no superusers: "" for everybody
}

// ReadServer asks the server what it says of itself, and of a slot.
func ReadServer(ctx context.Context, db database.Reader, slot string) (Server, error) {
	rows, _ := db.Query(ctx, sqlfiles.Query("server"), pgx.StrictNamedArgs{"slot": slot})
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Server])
}

// CreateVector returns the statements that install pgvector in the database.
func (s *Server) CreateVector() (sql []string, schema string) {
	if s.HasPublic {
		return []string{"CREATE EXTENSION vector SCHEMA public;"}, "public"
	}
	return []string{"CREATE SCHEMA vector;", "CREATE EXTENSION vector SCHEMA vector;"}, "vector"
}

// WALLevelHint is how a server gets the wal_level that the stream needs.
var WALLevelHint = []string{
	"ALTER SYSTEM SET wal_level = 'logical'; and restart the server",
	"managed servers: rds.logical_replication = 1 (RDS), cloudsql.logical_decoding = on (Cloud SQL), wal_level = LOGICAL (Azure)",
}

// SchemaVersion returns the version of our schema; 0 when there is none.
func SchemaVersion(ctx context.Context, q database.Querier) (int, error) {
	var there bool
	var role string
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'embedsidecar' AND c.relname = 'schema_version'), current_user::text`).Scan(&there, &role)
	if err != nil {
		return 0, fmt.Errorf("look up version of the schema: %w", err)
	}
	if !there {
		return 0, nil
	}
	var version int
	err = q.QueryRow(ctx, "SELECT version FROM embedsidecar.schema_version").Scan(&version)
	if database.Denied(err) {
		return 0, &refusal.PermissionError{What: "look at the schema embedsidecar", Role: role, Err: err, SQL: []string{
			"GRANT embedsidecar_reader TO " + database.Quote(role) + ";",
			"-- that reads how everything stands; embedsidecar_searcher searches, embedsidecar_operator repairs, embedsidecar_run works",
			"-- if there is no such group: `embedsidecar roles` prints what makes it",
		}}
	}
	return version, wrap.Errorf(err, "look up version of the schema")
}

// CheckVersion returns *NotSetUpError when the schema of ours is missing or older than this program needs. A newer
// one is fine: upgrades only add.
func CheckVersion(ctx context.Context, db database.Beginner) error {
	return database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		if err := Untrusted(ctx, tx); err != nil {
			return err
		}
		version, err := SchemaVersion(ctx, tx)
		switch {
		case err != nil:
			return err
		case version == 0:
			return &refusal.NotSetUpError{}
		case version < sqlfiles.FirstVersion:
			return BeforeFirst(version)
		case version < sqlfiles.Version:
			older := &refusal.NotSetUpError{Err: fmt.Errorf("the schema embedsidecar has version %d, and this program needs version %d",
				version, sqlfiles.Version)}
			err = tx.QueryRow(ctx, "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'embedsidecar'").Scan(&older.Of)
			if err != nil {
				return fmt.Errorf("look up the owner of the schema: %w", err)
			}
			return older
		}
		return nil
	})
}

// BeforeFirst is the error of a schema that no upgrade begins with.
func BeforeFirst(version int) error {
	return refusal.Coded(code.NotSetUp, fmt.Sprintf("the schema embedsidecar has version %d, of a program before the first release: "+
		"it is not upgraded", version),
		"remove it with that program's `embedsidecar uninstall --yes`, which keeps the vectors, then run `embedsidecar init --adopt`: it keeps those in embedding tables",
		"a column with vectors takes `--overwrite`, too, which embeds its rows again")
}

// SameServer makes sure that both connections lead to one database of one server: the second may be given a URL of
// its own.
func SameServer(ctx context.Context, q database.Querier, repl *pgconn.PgConn) error {
	const sql = "SELECT current_database() || ' of the server started at ' || pg_postmaster_start_time()"
	var want string
	if err := q.QueryRow(ctx, sql).Scan(&want); err != nil {
		return fmt.Errorf("compare servers: %w", err)
	}
	results, err := repl.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.Join(errors.New("compare servers"), err)
	}
	if got := string(results[0].Rows[0][0]); got != want {
		return &refusal.ConfigError{Problem: fmt.Sprintf("the URLs name different databases: %s, and for the stream %s",
			want,
			got), Code: code.TwoDatabases, Hint: []string{"use the same server and database in --stream-url and --database-url"}}
	}
	return nil
}
