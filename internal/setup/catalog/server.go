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
	database.Managed + ": set its parameter instead, and restart it: rds.logical_replication = 1 (RDS), cloudsql.logical_decoding = on (Cloud SQL), wal_level = LOGICAL (Azure)",
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
