package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// ConnectReplication opens a connection that may create slots and stream changes of the database in dsn. Its session
// prints values exactly as those of Connect do. It returns *Error, of kind Pooler when something between us and the
// server does not speak the replication protocol.
func ConnectReplication(ctx context.Context, dsn string, o Options) (*pgconn.PgConn, error) {
	parsed, err := parse(dsn, o)
	if err != nil {
		return nil, err
	}
	cfg := &parsed.ConnConfig.Config
	renew(cfg, dsn, o)
	cfg.RuntimeParams["replication"] = "database"
	// A hung process still answers TCP probes. Without this, a server that has data to send, or ends the session
	// because the slot keeps too much WAL, would wait for it forever, and a checkpoint would wait for the server
	// process.
	cfg.RuntimeParams["tcp_user_timeout"] = strconv.Itoa(int(unreadFor.Milliseconds()))
	var heard *atomic.Int64
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := newFrames(r)
		heard = &f.heard
		return pgproto3.NewFrontend(f, w)
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err, *cfg)
	}
	if err := prove(ctx, conn); err != nil {
		closeErr := conn.Close(ctx)
		return nil, errors.Join(classify(err, *cfg), closeErr)
	}
	conn.CustomData()[heardKey] = heard
	return conn, nil
}

const heardKey = "embedsidecar.heard"

// Heard returns how many bytes the server has sent on a connection of ConnectReplication, including incomplete and
// skipped messages.
func Heard(conn *pgconn.PgConn) int64 {
	if heard, ok := conn.CustomData()[heardKey].(*atomic.Int64); ok {
		return heard.Load()
	}
	return 0
}

// unreadFor is how long the stream may leave data from the server unread, for example while the queue is unavailable.
const unreadFor = 5 * time.Minute

// OwnSlot returns the slot name of one database: all databases of a server share the names of slots.
func OwnSlot(database string) string {
	const longest = 63
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower("embedsidecar_"+database))
	return name[:min(longest, len(name))]
}

// prove tests that a connection is a replication connection: a pooler that ignores the start-up parameter returns an
// ordinary session, to which IDENTIFY_SYSTEM is a syntax error.
func prove(ctx context.Context, conn *pgconn.PgConn) error {
	if _, err := conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll(); err != nil {
		if HasCode(err, pgerrcode.SyntaxError) {
			return &Error{Kind: Pooler, Err: errors.New(
				"a connection pooler returned an ordinary session instead of one for replication"), Hint: directHint}
		}
		return fmt.Errorf("identify system: %w", err)
	}
	if err := unlimited(ctx, conn); err != nil {
		return err
	}
	// A default of the role (ALTER ROLE ... SET role) may change the current role, and the REPLICATION attribute is not
	// inherited by membership.
	if _, err := conn.Exec(ctx, "SET ROLE NONE").ReadAll(); err != nil {
		return fmt.Errorf("set role: %w", err)
	}
	_, err := rawEncoding(ctx, conn)
	return err
}
