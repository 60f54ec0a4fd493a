package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// The tested server versions.
const (
	release    = 10000 // difference between the numbers of major versions
	minVersion = 14 * release
	maxVersion = 19 * release
)

// Server is what the server reports about itself and the role.
type Server struct {
	Version         int
	WALLevel        string
	Standby         bool
	Keep            string // max_slot_wal_keep_size, as configured
	KeepMB          int64  // -1: no limit
	Slots           int
	MaxSlots        int
	Senders         int
	MaxSenders      int
	Exists          bool   // the slot exists
	Streamed        bool   // someone reads the slot
	Vector          string // installed version of the extension; "": not installed
	VectorAvailable string // version that the server has available; "": none
	VectorMay       bool   // the role may install it in this database
	Database        string
	Role            string
	Superuser       bool
	MayCreate       bool     // has CREATE on the database
	Owns            bool     // the schema embedsidecar exists, and the role may change it
	HasPublic       bool     // the schema public exists
	TablesOnly      bool     // the server can refuse views in place of tables
	Emitters        []string // non-superusers that may write logical messages; "" for PUBLIC
}

// ReadServer reads the state of the server and of a slot.
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

// Major returns the server's major version.
func (s *Server) Major() int { return s.Version / release }

// TooOld returns *ConfigError if the server's version is not supported.
func (s *Server) TooOld() error {
	if s.Version >= minVersion {
		return nil
	}
	return refusal.Coded(code.OldServer, fmt.Sprintf("PostgreSQL %d is too old", s.Major()), "14 is the oldest that works")
}

// OnStandby returns *ConfigError if the server is read-only.
func (s *Server) OnStandby() error {
	if !s.Standby {
		return nil
	}
	return refusal.Coded(code.Standby, "the server is a standby", "give the URL of the primary")
}

// NotLogical returns *ConfigError if the server's WAL has no row changes.
func (s *Server) NotLogical() error {
	if s.WALLevel == "logical" {
		return nil
	}
	return refusal.Coded(code.WALLevel, fmt.Sprintf("wal_level: it is %s, want logical", s.WALLevel), walLevelHint...)
}

// Untested returns a warning for a server that is newer than the tested ones; "": it is not.
func (s *Server) Untested() string {
	if s.Version < maxVersion {
		return ""
	}
	return fmt.Sprintf("PostgreSQL %d is newer than what was tested", s.Major())
}

// walLevelHint says how to set the wal_level that the stream needs.
var walLevelHint = []string{
	"ALTER SYSTEM SET wal_level = 'logical'; and restart the server",
	database.Managed + ": set its parameter instead, and restart it: rds.logical_replication = 1 (RDS), cloudsql.logical_decoding = on (Cloud SQL), wal_level = LOGICAL (Azure)",
}

// SameServer checks that both connections lead to the same database and server: the second may have its own URL.
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
		return refusal.Coded(code.TwoDatabases, fmt.Sprintf("the URLs name different databases: %s, and for the stream %s",
			want, got), "use the same server and database in --stream-url and --database-url")
	}
	return nil
}
