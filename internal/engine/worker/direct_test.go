package worker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// whole are the forms whose changes may be worked at once.
func whole() map[string]*pipeline.Pipeline {
	list := forms()
	delete(list, "chunks")
	return list
}

// The two ways of working changes at once: over a pool, and over a line.
var ways = map[string]database.DB{"pool": nil, "line": (*pgx.Conn)(nil)}

// atOnce works changes of rows at once and returns which of them are done.
func atOnce(ctx context.Context, w *Worker, line database.DB, keys ...string) (done []string) {
	changes := make([]queue.Change, len(keys))
	for i, key := range keys {
		changes[i] = queue.Change{PipelineID: w.o.Pipeline.ID, RowKey: key, CommittedAt: time.Now(), LSN: 7}
	}
	d := &queue.Direct{Slot: "slot", Epoch: 1, Line: line}
	w.Direct(ctx, d, changes)
	for _, key := range keys {
		if d.Done(key) {
			done = append(done, key)
		}
	}
	return done
}

func wantDone(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q are done at once, want %q", what, got, want)
	}
}

// What is worked at once ends as it would by way of the queue, or is left to it as it was.
func TestDirect_EndsWhatItCan(t *testing.T) {
	t.Parallel()
	for form, p := range whole() {
		for way, line := range ways {
			t.Run(form+" over a "+way, func(t *testing.T) {
				t.Parallel()
				endsWhatItCan(t, p, line)
			})
		}
	}
}

func endsWhatItCan(t *testing.T, p *pipeline.Pipeline, line database.DB) {
	t.Helper()
	w, m, e := inMemory(t, p, nil)
	m.source = map[string]string{"a": textA, "b": textB, "blank": " "}
	wantDone(t, "at first", atOnce(t.Context(), w, line, "a", "b", "blank", "gone"), "a", "b", "blank", "gone")
	if len(m.stored) != 2 || len(m.ledger) != 3 || w.stats.Embedded.Load() != 2 || w.stats.Direct.Load() != 4 {
		t.Errorf("%d vectors, %d entries, %d counted, %d at once", len(m.stored), len(m.ledger), w.stats.Embedded.Load(),
			w.stats.Direct.Load())
	}
	paid := e.calls()
	wantDone(t, "as it was", atOnce(t.Context(), w, line, "a", "b"), "a", "b")
	if e.calls() != paid {
		t.Error("an unchanged text was paid for again")
	}
	m.source["a"], m.source["bad"] = "changed", "refused"
	e.refuse["refused"] = &embed.TextError{Class: embed.Data, Code: "no", Message: "no"}
	wantDone(t, "a text that is refused", atOnce(t.Context(), w, line, "bad", "b"), "b")
	if w.stats.Retried.Load() != 0 || w.stats.Rest.Load() != nil {
		t.Error("the queue has not tried it yet")
	}
	entry := m.ledger["a"]
	m.beforeBegin = func() {
		entry.LedgerVersion = "newer"
		m.ledger["a"] = entry
	}
	wantDone(t, "somebody is faster", atOnce(t.Context(), w, line, "a"))
	m.beforeBegin, m.overdue = nil, true
	m.source["b"] = "changed, too"
	wantDone(t, "another streams", atOnce(t.Context(), w, line, "b"))
	m.overdue = false
	if p.InSource() {
		m.locked["b"] = true
		wantDone(t, "a row that somebody has locked", atOnce(t.Context(), w, line, "b"))
	}
	m.refuseRead = func([]string) error { return &pgconn.PgError{Code: "22012"} }
	wantDone(t, "a row that cannot be read", atOnce(t.Context(), w, line, "b"))
	m.refuseRead = nil
	writes := 0
	m.refuseWrite = func(*rows.Change) error { writes++; return &pgconn.PgError{Code: "57014"} }
	m.locked = map[string]bool{}
	wantDone(t, "a write-back that takes too long", atOnce(t.Context(), w, line, "a", "b"))
	if writes != 1 {
		t.Errorf("%d write-backs were tried: the stream waits for each", writes)
	}
	w.gate.close()
	m.refuseWrite = nil
	wantDone(t, "a pipeline that is stopped", atOnce(t.Context(), w, line, "b"))
}

// P5: the stream of all pipelines waits for what is worked at once, so only what is quick is.
func TestP5_OnlyWhatIsQuickIsWorkedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for form, p := range whole() {
			w, m, e := inMemory(t, p, nil)
			if w.Ready(1) {
				t.Errorf("%s: nothing is known of it, and it is ready", form)
			}
			m.source["a"] = textA
			atOnce(t.Context(), w, nil, "a")
			if !w.Ready(1) {
				t.Errorf("%s: it is quick, and not ready", form)
			}
			if next, _, _ := inMemory(t, p, func(o *Options) { o.Service = w.o.Service }); !next.Ready(1) {
				t.Errorf("%s: its embedder is quick for another pipeline, and its first change is left to the queue", form)
			}
			e.hang.Store(true)
			m.source["a"] = textB
			began := time.Now()
			wantDone(t, "an embedder that hangs", atOnce(t.Context(), w, nil, "a"))
			if took := time.Since(began); took > 3*QuickEnough {
				t.Errorf("%s: it is waited for %s", form, took)
			}
			if w.Ready(1) || w.o.Service.Rest() != 0 {
				t.Errorf("%s: it hangs: ready %t, and the embedder rests for %s", form, w.Ready(1), w.o.Service.Rest())
			}
			if next, _, _ := inMemory(t, p, func(o *Options) { o.Service = w.o.Service }); next.Ready(1) {
				t.Errorf("%s: its embedder hangs for another pipeline, and the stream waits for it", form)
			}
			e.hang.Store(false)
			for range 20 {
				w.quick.note(time.Millisecond, time.Millisecond, 1)
			}
			if !w.Ready(1) {
				t.Errorf("%s: its batches are quick again, and it is not ready", form)
			}
			if w.Ready(int(QuickEnough / time.Millisecond)) {
				t.Errorf("%s: the embedder takes a millisecond for each text, and it is ready for many", form)
			}
			why := "its texts fail"
			w.stats.Rest.Store(&why)
			if w.Ready(1) {
				t.Errorf("%s: it rests, and is ready", form)
			}
		}
		chunked, m, _ := inMemory(t, forms()["chunks"], nil)
		m.source["a"] = textA
		atOnce(t.Context(), chunked, nil, "a")
		if chunked.Ready(1) {
			t.Error("a text in chunks may take any time, and is ready")
		}
	})
}

// An embedder that the stream does not wait for may be paid for what it was asked: the queue has its answer.
func TestDirect_WhatWasGivenUpIsNotPaidForTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for form, p := range whole() {
			for _, slow := range []time.Duration{3 * QuickEnough, 20 * QuickEnough} {
				w, m, e := inMemory(t, p, nil)
				m.source["a"], m.source["b"], e.slow = textA, textB, slow
				wantDone(t, form+", slow", atOnce(t.Context(), w, nil, "a", "b"))
				if slow < 10*QuickEnough {
					<-time.After(slow) // the answer has come when the queue asks
				}
				if err := w.process(t.Context(), tasksFor("a", "b")); err != nil {
					t.Fatal(err)
				}
				if len(m.stored) != 2 || e.calls() != 2 || w.stats.Sent.Load() != 2 || w.stats.Tokens.Load() != 2 {
					t.Errorf("%s: %d vectors, %d texts sent, %d counted with %d tokens", form, len(m.stored), e.calls(),
						w.stats.Sent.Load(), w.stats.Tokens.Load())
				}
			}
		}
	})
}

// TestP5_WhoKeepsTheStreamWaitingIsLeftToTheQueue: a few slow rows among many quick ones delay other pipelines a few
// times, and not each time.
func TestP5_WhoKeepsTheStreamWaitingIsLeftToTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quick
		wait := func(d time.Duration) { <-time.After(d) }
		q.note(time.Millisecond, 0, 1)
		delayed := 0
		const hour = 3600
		for range hour { // a slow row in each second
			if !q.setAside() {
				delayed++
				q.keptWaiting()
			}
			wait(time.Second)
		}
		if delayed > 70 { // one for each doubling, then one a minute
			t.Errorf("the stream waited %d times in an hour", delayed)
		}
		wait(time.Hour)
		q.keptWaiting()
		wait(2 * leastAside)
		if q.setAside() {
			t.Error("what was long ago counts still")
		}
	})
}
