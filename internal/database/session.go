package database

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// usedKey is the CustomData key that records that others' code ran in a session.
const usedKey = "embedsidecar.used"

// Used records that others' triggers run in a transaction. What they leave in the session (settings, temporary tables,
// prepared statements, locks) is discarded before the connection is used again.
func Used(tx pgx.Tx) {
	if conn := tx.Conn(); conn != nil {
		conn.PgConn().CustomData()[usedKey] = true
	}
}

// released runs before a connection returns to its pool. pgx's AfterRelease would run concurrently with the next
// Acquire, which would then open another connection.
type released func(*pgx.Conn)

// TraceRelease runs before the rest of Release.
func (do released) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) { do(data.Conn) }

// TraceQueryStart does nothing.
func (released) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd does nothing.
func (released) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tidy resets a released connection to its initial state, or closes it. It leaves a pooler's session alone, which
// already belongs to another client.
func tidy(conn *pgx.Conn) {
	data := conn.PgConn().CustomData()
	if data[usedKey] != true {
		return
	}
	delete(data, usedKey)
	if !direct(conn.Config()) || conn.PgConn().TxStatus() != 'I' { // the pool closes connections in a transaction
		return
	}
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeout) //nolint:forbidigo // the pool calls it with none
	defer cancel()
	if reset(ctx, conn) != nil {
		_ = conn.Close(ctx) // the server may be gone
	}
}

func reset(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "DISCARD ALL"); err != nil { // resets settings to those of the start-up packet
		return err
	}
	if _, err := conn.Exec(ctx, "RESET ROLE"); err != nil { // to the role's default role, if it has one
		return err
	}
	if err := conn.DeallocateAll(ctx); err != nil { // none are left on the server: this clears the client's list
		return err
	}
	if _, err := rawEncoding(ctx, conn.PgConn()); err != nil {
		return err
	}
	if err := unlimited(ctx, conn.PgConn()); err != nil {
		return err
	}
	return tablesOnly(ctx, conn)
}

// localConduct applies to one transaction the settings that a session behind a pooler lacks. It is one statement, for
// the batch that begins the transaction. Its values are those of formatting and conduct.
var localConduct = "SELECT pg_catalog.set_config('search_path', '" + OwnPath +
	"', true), pg_catalog.set_config('lock_timeout', '500ms', true)," +
	" pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', true), pg_catalog.set_config('statement_timeout', '0', true)," +
	" pg_catalog.set_config('row_security', 'off', true), pg_catalog.set_config('jit', 'off', true)," +
	" " + fmt.Sprintf(restricts, restricted, "true") + ", " + fmt.Sprintf(endsWithClient, "true")

// Conduct adds the transaction's settings to a batch, right after its BEGIN, if db leads to a pooler, which drops
// session settings. Without the short lock_timeout, a user who deadlocks with us could be the victim.
func Conduct(db any, batch *pgx.Batch) {
	if pool, ok := db.(*pgxpool.Pool); ok && Pooled(pool) {
		batch.Queue(localConduct)
	}
}

// fewRows is the largest number of rows for which a generic plan is used: every row is found by an index. For more
// rows, a custom plan with other joins may be worth its cost.
const fewRows = 64

// planning is a statement that sets the planner options for the rest of a transaction or session.
func planning(mode, others string, local bool) string {
	setting := func(name, value string) string {
		return fmt.Sprintf("pg_catalog.set_config('%s', '%s', %t)", name, value, local)
	}
	settings := []string{setting("plan_cache_mode", mode)}
	for _, method := range []string{"seqscan", "bitmapscan", "hashjoin", "mergejoin"} {
		settings = append(settings, setting("enable_"+method, others))
	}
	return "SELECT " + strings.Join(settings, ", ")
}

var (
	planOnce = planning("force_generic_plan", "off", true)
	planAnew = planning(conduct["plan_cache_mode"], "on", true)
)

// PlanOnce makes the statements that follow in the batch's transaction use generic plans, planned once per session, if
// there are few rows: planning them each time costs more than running them. Everything must then be found by an index,
// because a generic plan made for an empty table would read all of one with millions of rows. It is for statements on
// our own tables: users' code (expressions, triggers) must not run under it, see PlanAnew. A pooler keeps no plans.
func PlanOnce(db any, batch *pgx.Batch, rows int) {
	switch _, is := db.(lined); {
	case !is:
		plan(db, batch, rows, planOnce)
	case rows > fewRows: // its session plans once for any number of rows
		batch.Queue(planAnew)
	}
}

// lined is the connection of a Line.
type lined struct{ *pgx.Conn }

// PlanAnew undoes PlanOnce for the same number of rows.
func PlanAnew(db any, batch *pgx.Batch, rows int) { plan(db, batch, rows, planAnew) }

func plan(db any, batch *pgx.Batch, rows int, sql string) {
	if pool, ok := db.(*pgxpool.Pool); rows > fewRows || ok && Pooled(pool) {
		return
	}
	batch.Queue(sql)
}

// keepPlans is a statement that makes the rest of a transaction use generic plans.
const keepPlans = "SELECT pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)"

// KeepPlans makes the later statements of a batch use generic plans: they repeat the same few catalog queries, whose
// planning costs more than running them. It must not run users' code. A pooler keeps no plans.
func KeepPlans(pool *pgxpool.Pool, batch *pgx.Batch) {
	if !Pooled(pool) {
		batch.Queue(keepPlans)
	}
}

// KeepPlansHere is KeepPlans for a transaction that runs no users' code: a reused connection has the plans of its
// catalog queries already.
func KeepPlansHere(ctx context.Context, tx pgx.Tx) error {
	if !direct(tx.Conn().Config()) {
		return nil
	}
	_, err := tx.Exec(ctx, keepPlans)
	return err
}

// PathStatement returns the statement that sets the search_path, its parameter, for the rest of a transaction. Unless
// the path is our own, it also allows views in place of tables.
func PathStatement(own bool) string {
	kinds := ""
	if own {
		kinds = restricted
	}
	return "SELECT pg_catalog.set_config('search_path', $1, true), " + fmt.Sprintf(restricts, kinds, "true")
}
