package replication

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/base/pace"
	"github.com/embedsidecar/embedsidecar/queue"
)

// yielding runs the enqueuer of a session beside others who keep the host busy, or do not. A batch takes 500 ms.
func yielding(t *testing.T, busy *atomic.Bool) (ses *session, stored chan queue.Batch) {
	t.Helper()
	stored = make(chan queue.Batch, 1000)
	ses, _ = enqueuing(t, func(b queue.Batch) (queue.Enqueued, error) {
		<-time.After(500 * time.Millisecond)
		stored <- b
		return queue.Enqueued{}, nil
	})
	ses.s.o.GiveWay, ses.s.o.Busy = 10*time.Second, busy.Load
	ses.yield = pace.Pace{Share: busyShare, Most: ses.s.o.GiveWay}
	ses.s.stats.ServerLSN.Store(1000)
	return ses, stored
}

func rows(ses *session, n int, end pglogrepl.LSN) {
	for i := range n {
		ses.buffer.add(queue.Change{RowKey: fmt.Sprint(i)})
	}
	ses.buffer.commit(end, false)
	ses.s.stats.ReceivedLSN.Store(uint64(end))
	synctest.Wait()
}

// While others keep the host busy work waits, changes of a row become one, and none waits for longer than is allowed.
func TestGiveWay_UntilItIsTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		ses, stored := yielding(t, &busy)
		rows(ses, 10, 200)
		pass(time.Second)
		if len(stored) != 1 {
			t.Fatal("a change that comes alone waits")
		}
		<-stored
		for end := range 20 {
			rows(ses, maxBatch+1, pglogrepl.LSN(300+end))
		}
		if pass(8 * time.Second); len(stored) > 0 || ses.buffer.full() {
			t.Fatal("what can wait does not")
		}
		since, is := ses.s.stats.GivesWay(time.Now())
		if !is || time.Since(since) < 7*time.Second || ses.s.stats.GaveWay.Load() < int64(7*time.Second) {
			t.Error("nobody can see that it gives way")
		}
		pass(4 * time.Second)
		if len(stored) != 2 {
			t.Fatalf("%d batches were stored after the longest wait, want two, of all rows", len(stored))
		}
		first, second := <-stored, <-stored
		if len(first.Changes)+len(second.Changes) != maxBatch+1 || first.Checkpoint != 0 || second.Checkpoint != 319 {
			t.Errorf("%d rows up to %s, and %d up to %s", len(first.Changes), first.Checkpoint, len(second.Changes),
				second.Checkpoint)
		}
		if pass(time.Minute); ses.s.stats.GaveWay.Load() > int64(time.Minute) {
			t.Error("it gives way though nothing waits")
		}
		if _, is := ses.s.stats.GivesWay(time.Now()); is {
			t.Error("it says that it gives way though nothing waits")
		}
	})
}

// Work goes on as soon as others let it, somebody waits for it, or too much is kept for it.
func TestGiveWay_Ends(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ses *session, busy *atomic.Bool){
		"others rest": func(_ *session, busy *atomic.Bool) { busy.Store(false) },
		"somebody waits for what has come": func(ses *session, _ *atomic.Bool) {
			ses.buffer.want(250)
		},
		"somebody waits for what is to come": func(ses *session, _ *atomic.Bool) { ses.buffer.want(900) },
		"a table is to be scanned":           func(ses *session, _ *atomic.Bool) { ses.buffer.scan(7) },
		"much WAL is kept":                   func(ses *session, _ *atomic.Bool) { ses.s.stats.ReceivedLSN.Add(longestWAL) },
		"memory is full": func(ses *session, _ *atomic.Bool) {
			for i := 0; !ses.buffer.full(); i++ {
				ses.buffer.add(queue.Change{RowKey: fmt.Sprint("row ", i)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var busy atomic.Bool
				busy.Store(true)
				ses, stored := yielding(t, &busy)
				rows(ses, maxBatch, 200)
				pass(time.Second)
				<-stored
				rows(ses, maxBatch, 250)
				if pass(time.Second); len(stored) > 0 {
					t.Fatal("what can wait does not")
				}
				end(ses, &busy)
				if pass(600 * time.Millisecond); len(stored) == 0 {
					t.Error("it goes on giving way")
				}
				if len(ses.buffer.room) == 0 {
					t.Error("who reads does not learn that there is room")
				}
				busy.Store(false)
				pass(time.Minute) // until all batches have ended
			})
		})
	}
}

// A buffer that holds changes while work is put off takes many of few rows, and no more memory than it may.
func TestBuffer_HoldsWhatHasRoom(t *testing.T) {
	t.Parallel()
	b := newBuffer()
	if b.hold(time.Hour, 0) {
		t.Fatal("an empty buffer holds something")
	}
	if b.add(queue.Change{RowKey: "0"}); !b.hold(time.Hour, 0) {
		t.Fatal("a change does not wait")
	}
	for i := range 300_000 {
		b.add(queue.Change{RowKey: fmt.Sprint(i % 5000)})
		if b.full() {
			t.Fatalf("full after %d changes of 5,000 rows", i+1)
		}
	}
	n := 0
	for ; !b.full(); n++ {
		b.add(queue.Change{RowKey: fmt.Sprint("another ", n)})
	}
	if most := mostHeld / 128; n < most/4 || n > most {
		t.Errorf("full after %d rows", n)
	}
	if b.hold(time.Hour, 0) {
		t.Error("a full buffer holds more")
	}
	total := 0
	all := b.take()
	for _, some := range all.portions() {
		if total += len(some.changes); len(some.changes) > maxBatch {
			t.Errorf("a portion of %d changes", len(some.changes))
		}
	}
	if total != n+5000 {
		t.Errorf("%d changes in all portions, want %d", total, n+5000)
	}
}

// Nobody gives way with nothing: positions are stored as ever, and what was done before is worth ten seconds at most.
func TestGiveWay_NothingWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		ses, stored := yielding(t, &busy)
		for end := range 100 { // each is full, and none may wait: somebody asks
			ses.buffer.want(pglogrepl.LSN(200 + end))
			rows(ses, maxBatch, pglogrepl.LSN(200+end))
			pass(time.Second)
			<-stored
			<-ses.durable
		}
		ses.buffer.commit(300+idleBytes, false) // of tables that are not ours
		ses.buffer.want(300 + idleBytes)
		if pass(time.Second); len(stored) != 1 {
			t.Error("a position waits for nobody")
		}
		<-stored
		pass(10 * time.Second)
		rows(ses, 1, 400+idleBytes)
		if pass(time.Second); len(stored) != 1 {
			t.Error("a change that comes alone waits for what was done long before it")
		}
		ses.buffer.want(1 << 40) // which the server has not reached, and may never
		rows(ses, maxBatch, 500+idleBytes)
		<-stored
		if pass(5 * time.Second); len(stored) != 0 {
			t.Error("who waits for what is not there ends it")
		}
		busy.Store(false)
		pass(time.Minute)
	})
}
