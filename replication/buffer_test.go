package replication

import (
	"fmt"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

func TestBuffer_SavesTheEndOfATransactionThatWasTakenBeforeIt(t *testing.T) {
	t.Parallel()
	signalled := func(b *buffer) bool {
		select {
		case <-b.changed:
			return true
		default:
			return false
		}
	}
	b := newBuffer()
	for range largeTransaction + maxBatch/2 {
		b.add(queue.Change{RowKey: "1", Lane: pipeline.Normal})
	}
	if signalled(b) {
		t.Fatal("a transaction that may turn out to be large is handed on")
	}
	for taken := 0; b.pour() || taken < largeTransaction+maxBatch/2; {
		got := b.take()
		if taken += len(got.changes); len(got.changes) == 0 || len(got.changes) > maxBatch || got.upTo != 0 || got.hurry {
			t.Fatalf("took %d changes up to %s, want a batch and no end", len(got.changes), got.upTo)
		}
		for _, c := range got.changes {
			if c.Lane != pipeline.Low || !c.Later {
				t.Fatalf("%+v: of a large transaction, and not in the low lane", c)
			}
		}
	}
	signalled(b)
	b.commit(100, false)
	if !signalled(b) {
		t.Error("the end of a transaction that was taken before it waits")
	}
	if got := b.take(); got.upTo != 100 || !got.hurry {
		t.Errorf("took %+v, want the end, to be saved at once", got)
	}
	// A transaction that brought nothing, or an idle position, is not worth a write of its own.
	b.commit(200, false)
	b.commit(300, false)
	if signalled(b) {
		t.Error("a transaction without changes asks to be saved at once")
	}
	if got := b.take(); got.upTo != 300 || got.hurry {
		t.Errorf("took %+v, want the position, whenever it is worth it", got)
	}
}

// TestBuffer_ALargeTransactionEndsWhenAllOfItIsTaken: its position is that of no batch before.
func TestBuffer_ALargeTransactionEndsWhenAllOfItIsTaken(t *testing.T) {
	t.Parallel()
	b := newBuffer()
	for range largeTransaction {
		b.add(queue.Change{RowKey: "1", Lane: pipeline.Normal})
	}
	b.commit(100, false)
	n := 0
	for b.pour() {
		got := b.take()
		if n += len(got.changes); (got.upTo == 100) != (n == largeTransaction) || got.changes[0].Lane != pipeline.Normal {
			t.Fatalf("after %d changes up to %s in lane %d", n, got.upTo, got.changes[0].Lane)
		}
	}
	if n != largeTransaction {
		t.Errorf("%d of %d changes were taken", n, largeTransaction)
	}
}

// TestBuffer_AHintIsForAllOfATransaction: also for what came before it, and for nothing else.
func TestBuffer_AHintIsForAllOfATransaction(t *testing.T) {
	t.Parallel()
	b := newBuffer()
	seen := pipeline.NewSeen(true)
	b.add(queue.Change{RowKey: "before", Lane: pipeline.Normal})
	b.commit(100, false)
	b.add(queue.Change{RowKey: "1", Lane: pipeline.Normal})
	b.add(queue.Change{RowKey: "2", Lane: pipeline.Normal, Seen: seen, Later: true})
	b.hint(pipeline.Urgent)
	b.commit(200, false)
	b.add(queue.Change{RowKey: "3", Lane: pipeline.Normal})
	b.hint(pipeline.Low)
	b.commit(300, false)
	var lanes []string
	for _, c := range b.take().changes {
		lanes = append(lanes, fmt.Sprint(c.RowKey, " ", c.Lane, " ", c.Later))
	}
	if want := []string{"before 1 false", "1 3 false", "2 3 true", "3 0 true"}; !slices.Equal(lanes, want) {
		t.Errorf("%q, want %q", lanes, want)
	}
}
