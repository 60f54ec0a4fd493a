package replication

import (
	"testing"

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
	for range maxBatch {
		b.add(queue.Change{RowKey: "1"})
	}
	if !signalled(b) || !b.full() {
		t.Fatal("a full buffer does not say so")
	}
	if got := b.take(); len(got.changes) != maxBatch || got.upTo != 0 || got.hurry {
		t.Fatalf("took %d changes up to %s, want all and no end", len(got.changes), got.upTo)
	}
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
