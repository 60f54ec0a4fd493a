package worker

import (
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// item is one task on its way through a batch.
type item struct {
	task   queue.Task
	row    rows.Row
	action action
	vector []float32
	chunks []rows.Chunk // chunked: instead of vector, in the order of their numbers
	err    error        // of this row alone
	sent   bool         // the embedder was asked for its text, or a part of it
	paid   bool         // ... and nobody knew it
	nobody bool         // no row can have its key: it is no value of the key columns any more
}

// action is what an item needs.
type action int

const (
	nothing  action = iota // unchanged
	vectorIn               // write a vector
	relabel                // the vector stays, the ledger does not: another watched column changed, or the generation
	empty                  // take the vector away: no text
	skip                   // the vector stays though the text is another one: who wrote it says so
	gone                   // the row is gone
	alias                  // the row has another spelling of this key: forget this one
	broken                 // err
)

// outcome words of finished items, for history.
var words = map[action]string{
	nothing: "unchanged", relabel: "unchanged", skip: "skipped", empty: "emptied", gone: "removed", alias: "removed",
}

func (it *item) word() string {
	switch {
	case it.action != vectorIn:
		return words[it.action]
	case !it.paid: // the vector was known, of an equal text or of this one, or those of all chunks were
		return "reused"
	}
	return "embedded"
}

// touches reports whether the item changes the destination's row.
func (it *item) touches() bool {
	return it.action == vectorIn || it.action == empty && it.row.Stored
}

// lacksText reports whether the item is to be embedded and its text was left out.
func (it *item) lacksText() bool {
	return it.action == vectorIn && it.vector == nil && it.row.LeftOut()
}

func textBytes(items []item) (n int) {
	for i := range items {
		n += len(items[i].row.Text)
	}
	return n
}

func tasksOf(items []item) []queue.Task {
	return lists.Map(items, func(v item) queue.Task { return v.task })
}

// reached is a place that a batch comes by on either way, so that a test can choose on which.
func reached(t queue.Task, place string) error {
	if t.IsDirect() {
		return failpoint.Hit("direct/" + place)
	}
	return failpoint.Hit("worker/" + place)
}
