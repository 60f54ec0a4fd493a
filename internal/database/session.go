package database

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// usedKey is where a connection keeps that code of others ran in its session.
const usedKey = "embedsidecar.used"

// Used notes that triggers of others run in a transaction: what they may leave in the session (settings, temporary
// tables, prepared statements, locks) is thrown away before anybody else gets the connection.
func Used(tx pgx.Tx) {
	if conn := tx.Conn(); conn != nil {
		conn.PgConn().CustomData()[usedKey] = true
	}
}

// released is what is done with a connection before its pool has it back. With pgx's AfterRelease, which is called
// beside, the next one who asks would not find it there and open another.
type released func(*pgx.Conn)

// TraceRelease is called first of all by Release.
func (do released) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) { do(data.Conn) }

// TraceQueryStart does nothing.
func (released) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd does nothing.
func (released) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tidy makes a released connection as it was when it was made, or closes it. Behind a pooler the session is another's
// already.
func tidy(conn *pgx.Conn) {
	data := conn.PgConn().CustomData()
	if data[usedKey] != true {
		return
	}
	delete(data, usedKey)
	if !direct(conn.Config()) || conn.PgConn().TxStatus() != 'I' { // the pool closes one in a transaction
		return
	}
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeout) //nolint:forbidigo // the pool calls it with none
	defer cancel()
	if reset(ctx, conn) != nil {
		_ = conn.Close(ctx) // there may be no other end
	}
}

func reset(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "DISCARD ALL"); err != nil { // settings go back to what the start-up packet said
		return err
	}
	if _, err := conn.Exec(ctx, "RESET ROLE"); err != nil { // to the default of the role, where it has one
		return err
	}
	if err := conn.DeallocateAll(ctx); err != nil { // there are none left: it is this side that must know
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

// localConduct says for one transaction what a session behind a pooler was not told. It is one statement, for the
// batch that begins the transaction; its values are those of formatting and conduct.
const localConduct = "SELECT pg_catalog.set_config('search_path', '" + OwnPath +
	"', true), pg_catalog.set_config('lock_timeout', '500ms', true)," +
	" pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', true), pg_catalog.set_config('statement_timeout', '0', true)," +
	" pg_catalog.set_config('row_security', 'off', true), pg_catalog.set_config('jit', 'off', true)," +
	" CASE WHEN pg_catalog.current_setting('" + restriction + "', true) IS NOT NULL THEN pg_catalog.set_config('" +
	restriction + "', '" + restricted + "', true) END"

// Conduct adds to a batch that begins a transaction, right after its beginning, how the transaction is to behave, if
// db leads to a pooler: what was said when the session was made is lost there. Without the short lock_timeout a user
// who waits for us and for whom we wait could be the one whose transaction the server ends.
func Conduct(db any, batch *pgx.Batch) {
	if pool, ok := db.(*pgxpool.Pool); ok && Pooled(pool) {
		batch.Queue(localConduct)
	}
}

// fewRows is up to how many rows of a statement its plan may be the one for any number: every row is looked up by an
// index. For more, what is joined may be worth a plan of its own.
const fewRows = 64

// planning is a statement that says how statements are planned: for the rest of a transaction, or of the session.
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

// PlanOnce adds to a batch, if it is about few rows, that the statements that follow in its transaction are planned
// once for a session, not each time: of few rows, the plan costs more than they do. Everything is found by an index
// then, or such a plan, made while a table was empty, would read all of it when it holds millions. It is for statements
// on our own tables: code of users (expressions, triggers) must not run under it, see PlanAnew. A pooler keeps no
// plans.
func PlanOnce(db any, batch *pgx.Batch, rows int) {
	switch _, is := db.(lined); {
	case !is:
		plan(db, batch, rows, planOnce)
	case rows > fewRows: // its session does so for any number
		batch.Queue(planAnew)
	}
}

// lined is the connection of a Line.
type lined struct{ *pgx.Conn }

// PlanAnew takes PlanOnce for as many rows back.
func PlanAnew(db any, batch *pgx.Batch, rows int) { plan(db, batch, rows, planAnew) }

func plan(db any, batch *pgx.Batch, rows int, sql string) {
	if pool, ok := db.(*pgxpool.Pool); rows > fewRows || ok && Pooled(pool) {
		return
	}
	batch.Queue(sql)
}

// keepPlans has statements planned once for a session, for the rest of a transaction.
const keepPlans = "SELECT pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)"

// KeepPlans has the statements of a batch that follow planned once for a session: those that repeat the same few
// questions about the catalogue, whose plans cost more than they do. It runs no code of users. A pooler keeps no plans.
func KeepPlans(pool *pgxpool.Pool, batch *pgx.Batch) {
	if !Pooled(pool) {
		batch.Queue(keepPlans)
	}
}

// KeepPlansHere is KeepPlans for a transaction that runs no code of users: where its connection is used again, what it
// asks of the catalogue is planned already.
func KeepPlansHere(ctx context.Context, tx pgx.Tx) error {
	if !direct(tx.Conn().Config()) {
		return nil
	}
	_, err := tx.Exec(ctx, keepPlans)
	return err
}

// PathStatement returns the statement that sets the search_path, its parameter, for the rest of a transaction, and
// that allows views in the place of tables unless the path is our own.
func PathStatement(own bool) string {
	kinds := ""
	if own {
		kinds = restricted
	}
	return "SELECT pg_catalog.set_config('search_path', $1, true), CASE WHEN pg_catalog.current_setting('" + restriction +
		"', true) IS NOT NULL" +
		" THEN pg_catalog.set_config('" + restriction + "', '" + kinds + "', true) END"
}
