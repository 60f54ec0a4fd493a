package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// unanswered lets nobody know whom a slot waits for.
type unanswered struct {
	on    atomic.Bool
	asked atomic.Int64
}

func (u *unanswered) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !u.on.Load() || !strings.HasPrefix(q.SQL, "-- blockers:") {
		return ctx
	}
	u.asked.Add(1)
	over, cancel := context.WithCancel(ctx)
	cancel()
	return over
}

func (*unanswered) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestP10_ASlotThatIsMadeWaitsAloud: a transaction that somebody prepared in another database and forgot holds up the
// new slot, and then the scan. Everybody who may be asked tells for whom the sidecar waits, and nobody calls that
// slot one from which is streamed.
func TestP10_ASlotThatIsMadeWaitsAloud(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{Config: map[string]string{"max_prepared_transactions": "5"}})
	db, other := testenv.DB(t, testenv.On(server)), testenv.DB(t, testenv.On(server))
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	r.edit("before ")
	_, stop := r.start()
	r.settle()
	stop()
	r.released()
	db.MustExec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	other.MustExec(`CREATE TABLE t (i int)`)
	conn, err := other.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{`BEGIN`, `INSERT INTO t VALUES (1)`, `PREPARE TRANSACTION 'it''s forgotten'`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	named := func(text string) bool {
		return strings.Contains(text, "it''s forgotten") && strings.Contains(text, other.Name)
	}

	log := &recorder{}
	r.options = func(o *sidecar.Options) { o.Log = log.logger() }
	r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := log.text()
		return strings.Contains(said, "slot creation waits") && named(said), said
	})
	unanswered := &unanswered{}
	r.options = func(o *sidecar.Options) {
		o.Log = log.logger()
		config := o.StreamPool.Config()
		config.ConnConfig.Tracer = unanswered
		direct, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(direct.Close)
		o.StreamPool = direct
	}
	another, _ := r.start() // one that stands by says it as well
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := log.text()
		return strings.Contains(said, "slot being created by another process, which waits"), said
	})
	// What it was told last holds when the next question gets no answer, and it stands by all the same.
	unanswered.on.Store(true)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		stats := another.Stream()
		list, asked := stats.Blockers.Load(), unanswered.asked.Load()
		return asked > 2 && list != nil && len(*list) > 0 && stats.Standby.Load(),
			fmt.Sprintf("asked %d times; %v; stands by %t", asked, list, stats.Standby.Load())
	})
	if n := another.Stream().Reconnects.Load(); n != 0 {
		t.Errorf("it was interrupted %d times", n)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // they are written down a moment after they are logged
		status, err := report.Options{}.Read(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		p, slot := status.Pipelines[0], status.Slots[0]
		return p.State == health.SlotWaiting && named(p.Reason) && len(slot.WaitsFor) > 0 &&
			slot.WaitsFor[0].AgeSeconds != nil, fmt.Sprintf("status: %s: %s; %+v", p.State, p.Reason, slot)
	})
	found := check.Run(t.Context(), check.Options{
		Pool: connect(t, r.url, 2), ReplicationDSN: r.url, Slot: r.slot,
		Publication: db.Name + "_pub",
	})
	ok := false
	for _, f := range found {
		ok = ok || f.Name == "slot" && f.Status == check.Wrong && strings.Contains(f.Detail, "being created") && named(f.Detail)
	}
	if !ok {
		t.Errorf("check: %+v", found)
	}
	other.MustExec(`ROLLBACK PREPARED 'it''s forgotten'`)
	r.edit("after ")
	r.settle()
	r.verify()
}

// TestP10_AScanThatWaitsSaysForWhom: of a transaction that is older than the request.
func TestP10_AScanThatWaitsSaysForWhom(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{})))
	db.MustExec(docs)
	db.MustExec(`CREATE TABLE elsewhere (i int)`)
	r := newRig(t, db, intoTable("docs", "body"))
	log := &recorder{}
	r.options = func(o *sidecar.Options) { o.Log = log.logger() }
	r.start()
	r.settle()
	open := r.locking(`INSERT INTO elsewhere VALUES (1)`)
	db.MustExec(`TRUNCATE docs`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := log.text()
		return strings.Contains(said, "scan waits for open transactions") && strings.Contains(said, "in database "+db.Name) &&
			strings.Contains(said, "scan in progress"), said
	})
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // they are written down a moment after they are logged
		status, err := report.Options{}.Read(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		p := status.Pipelines[0]
		return p.State == health.ScanWaiting && len(p.WaitsFor) > 0 && strings.Contains(p.Reason, p.WaitsFor[0].String()),
			fmt.Sprintf("status: %s: %s; %+v", p.State, p.Reason, p.WaitsFor)
	})
	r.rollback(open)
	r.settle()
	r.verify()
}
