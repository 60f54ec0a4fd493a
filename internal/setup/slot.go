package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// slotName is what Postgres allows.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// slotState is a slot and what our checkpoint says of it.
type slotState struct {
	Exists      bool
	Plugin      string
	Database    string
	Active      bool
	Making      bool   // it is held and has no position yet: the server waits for open transactions
	Holder      string // who streams from it, for people
	WALStatus   string
	Checkpoint  bool // there is a row
	Begun       bool // the row was written before the slot was made, and never completed
	Publication string
	PublishedBy uint32 // oid of the publication when the slot was made
	SystemID    string
}

func findSlot(ctx context.Context, q database.Querier, name string, installed bool) (slotState, error) {
	var s slotState
	err := q.QueryRow(ctx, `SELECT coalesce(s.plugin::text, ''), coalesce(s.database::text, ''), s.active, s.active
		AND s.confirmed_flush_lsn IS NULL, coalesce(s.wal_status, ''),
		CASE WHEN s.active THEN concat_ws(' ', 'pid', s.active_pid, nullif(a.application_name, ''), 'of role', a.usename,
		'from ' || host(a.client_addr)) ELSE '' END
		FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = $1`, name).
		Scan(&s.Plugin, &s.Database, &s.Active, &s.Making, &s.WALStatus, &s.Holder)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("look up slot %q: %w", name, err)
	}
	s.Exists = err == nil
	if !installed {
		return s, nil
	}
	err = q.QueryRow(ctx, `SELECT publication::text, publication_oid, system_id, consistent_point = '0/0'
		FROM embedsidecar.lsn_checkpoint WHERE slot_name = $1`, name).Scan(&s.Publication, &s.PublishedBy, &s.SystemID,
		&s.Begun)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("look up checkpoint of slot %q: %w", name, err)
	}
	s.Checkpoint = err == nil
	return s, nil
}

// renewal says why a slot must be made (anew), or "" if the one there is good. Making it anew means comparing every
// row.
func (s *slotState) renewal(name, here, systemID string, now *publication, adopt bool) (reason string, err error) {
	inUse := &refusal.ConflictError{
		Problem: fmt.Sprintf("slot %q is in use by %s", name, s.Holder),
		Hint:    []string{"stop it first, and run embedsidecar init again"},
	}
	switch {
	case !s.Exists && !s.Checkpoint:
		return "it does not exist", nil
	case s.Exists && s.Database != here:
		return "", s.elsewhere(name, here)
	case s.Exists && !s.Checkpoint:
		hint := []string{
			"choose another name with --slot",
			fmt.Sprintf("or, if nobody needs it: SELECT pg_drop_replication_slot(%s);", database.Literal(name)),
		}
		return "", &refusal.ConflictError{Problem: fmt.Sprintf("there is a slot %q that is not ours", name), Hint: hint}
	case s.Exists && s.Plugin != "pgoutput":
		return "", &refusal.ConflictError{
			Problem: fmt.Sprintf("slot %q belongs to plugin %q", name, s.Plugin),
			Hint:    []string{"choose another name with --slot"},
		}
	case s.SystemID != systemID && !s.Begun && !adopt:
		return "", &refusal.ConfigError{
			Problem: fmt.Sprintf("%s (system id %s, it was %s)", health.OtherServer, systemID, s.SystemID),
			Hint:    []string{"if this copy shall live on its own: embedsidecar init --adopt, with its pipelines configured: it makes a new slot and compares every row"},
		}
	}
	switch {
	case s.SystemID != systemID:
		reason = "the data came from another server"
	case s.Begun:
		reason = "making it was interrupted"
	case !s.Exists:
		reason = "it is gone"
	case s.WALStatus == "lost":
		reason = "the server removed WAL it still needed"
	case now == nil:
		reason = "its publication was missing"
	case now.OID != s.PublishedBy:
		reason = "its publication was dropped and made again"
	default:
		return "", nil
	}
	if s.Active {
		return "", inUse
	}
	return reason, nil
}

// elsewhere is the error of a slot that is another database's.
func (s *slotState) elsewhere(name, here string) error {
	own := database.OwnSlot(here)
	of := fmt.Sprintf("is of database %q", s.Database)
	if s.Database == "" {
		of = "is a physical one"
	}
	e := &refusal.ConflictError{
		Problem: fmt.Sprintf("slot %q %s, not of %q: all databases of a server share the names of slots", name, of, here),
		Hint: []string{fmt.Sprintf(
			"give this database a slot of its own, in every command: --slot %s, or EMBEDSIDECAR_SLOT", own)},
	}
	if s.Checkpoint {
		e.Hint = append(e.Hint, fmt.Sprintf(
			"it is a copy of the other, and its pipelines must go to that slot first: embedsidecar init --adopt --slot %s", own))
	}
	return e
}

// slotMaker makes a slot and tells who it waits for.
type slotMaker struct {
	pool     *pgxpool.Pool
	conn     *pgconn.PgConn // for replication
	name     string
	failover bool
	timeout  time.Duration
	log      *slog.Logger
}

// create returns the position from which on the slot delivers every commit. The server waits for all running
// transactions of the cluster first; when that takes too long, the error names them.
func (m *slotMaker) create(ctx context.Context) (pglogrepl.LSN, error) {
	arguments := database.Literal(m.name) + ", 'pgoutput'"
	if m.failover {
		arguments += ", false, false, true"
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		database.WatchBlockers(watching, m.pool, func(list []database.Blocker) {
			m.log.WarnContext(watching, "slot creation waits for open transactions", "slot", m.name, "transactions",
				strings.Join(database.Named(list), "; "))
		})
	}()
	defer func() { stop(); <-watched }()
	// A session that may stream takes SQL too, and unlike the replication command, SQL obeys a time limit.
	// It waits for transactions as for locks, and a busy server always has one that is older than our lock_timeout.
	sql := fmt.Sprintf("SET lock_timeout = 0; SET statement_timeout = %d; SELECT lsn FROM pg_create_logical_replication_slot(%s)", m.timeout.Milliseconds(), arguments)
	results, err := m.conn.Exec(ctx, sql).ReadAll()
	switch {
	case database.HasCode(err, pgerrcode.QueryCanceled) && ctx.Err() == nil:
		return 0, m.waited(ctx, err)
	case database.Denied(err):
		role := m.conn.ParameterStatus("session_authorization")
		return 0, &refusal.PermissionError{
			What: fmt.Sprintf("create slot %q", m.name), Role: role,
			SQL: []string{"ALTER ROLE " + database.Quote(role) + " REPLICATION;"}, Err: err,
		}
	case err != nil:
		return 0, fmt.Errorf("create slot %q: %w", m.name, err)
	}
	if len(results) != 3 || len(results[2].Rows) != 1 { //nolint:mnd // one for each statement
		return 0, fmt.Errorf("create slot %q: the server gave no position", m.name)
	}
	lsn, err := pglogrepl.ParseLSN(string(results[2].Rows[0][0]))
	if err != nil {
		return 0, fmt.Errorf("create slot %q: position %q: %w", m.name, results[2].Rows[0][0], err)
	}
	return lsn, nil
}

func (m *slotMaker) waited(ctx context.Context, cause error) error {
	list, err := database.Blockers(ctx, m.pool, "")
	blockers := database.Named(list)
	if err != nil {
		blockers = []string{err.Error()}
	}
	hint := []string{"wait for them to end, or end them: SELECT pg_terminate_backend(pid); then run embedsidecar init again"}
	for _, b := range blockers {
		hint = append(hint, "running: "+b)
	}
	return &refusal.ConflictError{Problem: fmt.Sprintf(
		"slot %q could not be made within %s: the server waits for every transaction of the cluster that is running", m.name,
		m.timeout), Hint: hint, Err: cause}
}

// lockHolders describes the sessions that hold a lock on one of the tables, at most ten.
func lockHolders(ctx context.Context, q database.Querier, tables []uint32) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT DISTINCT concat_ws(' ', 'pid', l.pid, 'of role', a.usename,
		nullif(a.application_name, ''), a.state,
			'holds', l.mode, 'on', l.relation::regclass)
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.relation = ANY ($1) AND l.granted AND l.pid <> pg_backend_pid()
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 10`, tables)
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	return list, nil
}
