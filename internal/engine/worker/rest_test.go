package worker

import (
	"context"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// A pipeline whose texts all fail rests, with one probe at a time and ever longer pauses, until one succeeds.
func TestNap_OneProbeAtATime(t *testing.T) {
	t.Parallel()
	var n nap
	note := func(good, bad, fresh int) (began, ended bool) {
		return n.note(good, bad, fresh, time.Second, 3*time.Second)
	}
	if began, _ := note(0, restAfter-1, restAfter-1); began {
		t.Fatal("it rests too early")
	}
	if began, _ := note(0, 5, 0); began {
		t.Fatal("texts that failed before are no reason to rest")
	}
	if wait, probe := n.enter(time.Now()); wait != 0 || probe {
		t.Fatal("it waits before it rests")
	}
	if began, _ := note(0, 1, 1); !began {
		t.Fatal("it does not rest")
	}
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if n.pause != pause {
			t.Errorf("it rests for %s, want %s", n.pause, pause)
		}
		if wait, probe := n.enter(n.until.Add(-time.Millisecond)); wait <= 0 || probe {
			t.Error("a batch passes while it rests")
		}
		later := n.until.Add(time.Millisecond)
		if wait, probe := n.enter(later); wait != 0 || !probe {
			t.Error("no probe after the pause")
		}
		if wait, probe := n.enter(later); wait <= 0 || probe {
			t.Error("two probes at a time")
		}
		note(0, 1, 1)
		n.leave()
	}
	n.enter(n.until.Add(time.Millisecond))
	if _, ended := note(1, 0, 0); !ended {
		t.Error("a text that succeeds does not end it")
	}
	n.leave()
	if wait, probe := n.enter(time.Now()); wait != 0 || probe {
		t.Error("it rests on")
	}
}

// A trigger that changes a row's text in every write-back is found out, one that does so once or twice is not.
func TestRestless_CountsMovesInARow(t *testing.T) {
	t.Parallel()
	var r restless
	written := []rows.Write{{Key: "a"}, {Key: "b"}}
	for range 3 {
		r.note(written, []int{1})
	}
	if r.moves("a") != 0 || r.moves("b") != 3 {
		t.Errorf("moves %d and %d, want 0 and 3", r.moves("a"), r.moves("b"))
	}
	r.note(written, nil)
	if r.moves("b") != 0 {
		t.Error("a row that kept still is still counted")
	}
}

// One batch of a pipeline has room whatever others hold; a second waits for the budget.
func TestBudget_OneBatchHasRoomOutside(t *testing.T) {
	t.Parallel()
	budget := NewBudget(100)
	one := New(Options{Pipeline: &pipeline.Pipeline{}, Budget: budget})
	other := New(Options{Pipeline: &pipeline.Pipeline{}, Budget: budget})
	take := func(w *Worker, size int) (*room, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return w.room(ctx, size)
	}
	outside, err := take(one, 1000)
	if err != nil {
		t.Fatal(err)
	}
	large, err := take(one, 1000) // as much as there is
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := one.room(short, 1); err == nil {
		t.Error("a third batch has room while the budget is spent")
	}
	if _, err := take(other, 1000); err != nil {
		t.Errorf("the first batch of another pipeline waits: %v", err)
	}
	large.shrink(40)
	part, err := take(one, 60)
	if err != nil {
		t.Fatalf("what was given back is not there: %v", err)
	}
	part.release()
	large.release()
	outside.release()
	outside.release() // it is over
	if again, err := take(one, 1000); err != nil || again.outside == nil {
		t.Errorf("the room outside is not free again: %+v, %v", again, err)
	}
}
