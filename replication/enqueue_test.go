package replication

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/queue"
)

func TestCheckpoint_IsWrittenWhenItIsWorthIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	saved := checkpoint{lsn: 1000, at: now.Add(-time.Second)}
	worked := checkpoint{lsn: 1000, at: now.Add(-time.Second), direct: true}
	old := checkpoint{lsn: 1000, at: now.Add(-idleTime)}
	for name, c := range map[string]struct {
		saved checkpoint
		taken taken
		want  bool
	}{
		"nothing":                         {saved, taken{upTo: 1000}, false},
		"a change":                        {saved, taken{changes: make([]queue.Change, 1)}, true},
		"a change that names no row":      {saved, taken{scans: map[int32][]uint32{7: nil}}, true},
		"an idle position":                {saved, taken{upTo: 1001}, false},
		"an idle position, waited for":    {saved, taken{upTo: 1001, hurry: true}, true},
		"one that moved far":              {saved, taken{upTo: 1000 + idleBytes}, true},
		"one that moved, after long":      {old, taken{upTo: 1001}, true},
		"one up to which all is worked":   {worked, taken{upTo: 1001}, true},
		"one that did not move":           {old, taken{upTo: 1000}, false},
		"one that is waited for, but old": {saved, taken{upTo: 999, hurry: true}, false},
	} {
		if got := c.saved.outdated(c.taken, now); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// enqueuing runs the enqueuer of a session whose batches go to store.
func enqueuing(t *testing.T, store func(b queue.Batch) (queue.Enqueued, error)) (ses *session, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := New(Options{Slot: "docs", Log: slog.New(slog.DiscardHandler)})
	ses = &session{
		s: s, epoch: 3, start: 100, buffer: newBuffer(), durable: make(chan pglogrepl.LSN, 1),
		store: func(_ context.Context, b queue.Batch) (queue.Enqueued, error) { return store(b) },
	}
	ended = make(chan error, 1)
	go func() { ended <- ses.enqueue(ctx) }()
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	synctest.Wait()
	return ses, ended
}

// P2: what is confirmed to the server is what was made durable, and never more.
func TestP2_OnlyWhatIsStoredIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := make(chan queue.Batch, 10)
		ses, _ := enqueuing(t, func(b queue.Batch) (queue.Enqueued, error) {
			stored <- b
			return queue.Enqueued{Made: 1, Joined: 2, Dropped: 3}, nil
		})
		for range maxBatch { // of a transaction whose end was not read yet
			ses.buffer.add(queue.Change{RowKey: "1"})
		}
		ses.buffer.commit(0, false)
		synctest.Wait()
		if b := <-stored; len(b.Changes) != maxBatch || b.Checkpoint != 0 || b.Epoch != 3 || b.Slot != "docs" ||
			len(ses.durable) != 0 {
			t.Fatalf("stored %d changes up to %s, %d positions are durable; want the changes and no position",
				len(b.Changes), b.Checkpoint, len(ses.durable))
		}
		ses.buffer.commit(500, false)
		synctest.Wait()
		if b := <-stored; b.Checkpoint != 500 || <-ses.durable != 500 || ses.s.stats.DurableLSN.Load() != 500 {
			t.Fatalf("stored %+v, want the end of the transaction", b)
		}
		pass(time.Second)
		ses.buffer.commit(600, false)
		pass(5 * time.Minute)
		if len(stored) != 0 {
			t.Error("an idle position was stored at once")
		}
		pass(idleTime)
		if b := <-stored; b.Checkpoint != 600 {
			t.Error("an idle position is never stored")
		}
		if ses.s.stats.Made.Load() != 3 || ses.s.stats.Joined.Load() != 6 || ses.s.stats.Dropped.Load() != 9 {
			t.Error("what became of the changes is not counted")
		}
		if len(ses.durable) != 1 { // the reader has not taken it: the next one takes its place
			t.Fatal("the reader is not told")
		}
		ses.buffer.add(queue.Change{RowKey: "2"})
		ses.buffer.commit(700, false)
		synctest.Wait()
		if got := <-ses.durable; got != 700 {
			t.Errorf("the reader is told %s, want the newest", got)
		}
	})
}

// P9: what is done beside the tables that are read moves the position, too, long before it is looked at for its time.
func TestP9_APositionThatMovedFarIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := make(chan queue.Batch, 10)
		ses, _ := enqueuing(t, func(b queue.Batch) (queue.Enqueued, error) {
			stored <- b
			return queue.Enqueued{}, nil
		})
		for n := range 20 {
			ses.buffer.commit(pglogrepl.LSN(100+(n+1)*16<<20), false)
			synctest.Wait()
		}
		if len(stored) != 5 {
			t.Errorf("over 320 MB of WAL %d positions were stored, want one for each 64 MB", len(stored))
		}
	})
}

// Somebody's lock is no reason to give up the slot; whatever else is wrong ends the session.
func TestEnqueue_TriesAgainAgainstLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries, scans atomic.Int64
		lost := errors.New("broken")
		ses, ended := enqueuing(t, func(queue.Batch) (queue.Enqueued, error) {
			switch n := tries.Add(1); {
			case n <= 60:
				return queue.Enqueued{}, database.ErrLocked
			case n == 61:
				return queue.Enqueued{}, nil
			}
			return queue.Enqueued{}, lost
		})
		ses.s.o.OnScan = func() { scans.Add(1) }
		ses.buffer.scan(7)
		ses.buffer.commit(200, false)
		pass(2 * time.Minute)
		if tries.Load() != 61 || scans.Load() != 1 || <-ses.durable != 200 {
			t.Fatalf("%d tries, %d scans told of", tries.Load(), scans.Load())
		}
		ses.buffer.add(queue.Change{RowKey: "1"})
		ses.buffer.commit(300, false)
		if err := <-ended; !errors.Is(err, lost) || len(ses.durable) != 0 {
			t.Errorf("ended with %v, and %d positions are durable", err, len(ses.durable))
		}
	})
}

func TestEnqueue_CountsKeysThatAreTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, _ := enqueuing(t, func(queue.Batch) (queue.Enqueued, error) { return queue.Enqueued{}, nil })
		ses.buffer.add(queue.Change{RowKey: string(make([]byte, 1<<20))})
		ses.buffer.commit(200, true)
		synctest.Wait()
		if ses.s.stats.TooLong.Load() != 1 || <-ses.durable != 200 {
			t.Errorf("%d keys are too long", ses.s.stats.TooLong.Load())
		}
	})
}

// What is worked at once costs no transaction of the queue; the position follows, at once if somebody waits for it.
func TestEnqueue_SavesLaterWhatWasWorkedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := make(chan queue.Batch, 10)
		ses, ended := enqueuing(t, func(b queue.Batch) (queue.Enqueued, error) {
			stored <- b
			return queue.Enqueued{Made: len(b.Changes)}, nil
		})
		left, failed := 0, errors.New("failed")
		var fails error
		ses.s.o.Direct = func(_ context.Context, epoch int64, changes []queue.Change) (Directed, error) {
			if epoch != ses.epoch || len(changes) > mostDirect {
				t.Errorf("asked for %d changes under epoch %d", len(changes), epoch)
			}
			return Directed{Left: changes[:left], Done: len(changes) - left, Embedding: time.Hour}, fails
		}
		change := func(n int, end pglogrepl.LSN, hurry bool) {
			for range n {
				ses.buffer.add(queue.Change{RowKey: "1"})
			}
			ses.buffer.commit(end, hurry)
			synctest.Wait()
		}
		change(2, 500, false)
		if len(stored) != 0 || ses.s.stats.Direct.Load() != 2 {
			t.Fatalf("%d batches are stored, %d changes worked at once", len(stored), ses.s.stats.Direct.Load())
		}
		pass(1100 * time.Millisecond)
		if b := <-stored; b.Checkpoint != 500 || len(b.Changes) != 0 || <-ses.durable != 500 {
			t.Fatalf("stored %+v, want the position", b)
		}
		pass(time.Minute)
		change(1, 600, true)
		if b := <-stored; b.Checkpoint != 600 || len(b.Changes) != 0 {
			t.Errorf("stored %+v, want the position that is waited for", b)
		}
		left = 1
		change(3, 700, false)
		if b := <-stored; b.Checkpoint != 700 || len(b.Changes) != 1 {
			t.Errorf("stored %+v, want what is left", b)
		}
		pass(time.Second)
		change(mostDirect+1, 800, false)
		if b := <-stored; b.Checkpoint != 800 || len(b.Changes) != mostDirect+1 {
			t.Errorf("stored %d changes, want all of many", len(b.Changes))
		}
		pass(time.Minute)
		if len(stored) != 0 {
			t.Error("a position that did not move is stored again")
		}
		fails = failed
		change(1, 900, false)
		if err := <-ended; !errors.Is(err, failed) || len(stored) != 0 {
			t.Errorf("ended with %v", err)
		}
	})
}
