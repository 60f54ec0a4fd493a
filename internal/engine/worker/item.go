package worker

import (
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// item is one task while its batch is processed.
type item struct {
	task   queue.Task
	row    rows.Row
	action action
	vector []float32
	chunks []rows.Chunk // chunked: instead of vector, by number
	err    error        // of this row only
	slow   bool         // err is that a statement took too long, with this row alone
	sent   bool         // its text, or a part of it, was sent to the embedder service
	paid   bool         // ... and was not in its cache
	nobody bool         // no row can have this key: it is no longer a valid value of the key columns
	// hash of the text that an adopted vector is said to be of, but perhaps is not; nil: there is no doubt
	doubted []byte
}

// action is what an item needs.
type action int

const (
	nothing  action = iota // unchanged
	vectorIn               // write a vector
	relabel                // update the ledger only: another watched column or the generation changed
	empty                  // delete the vector: there is no text
	skip                   // keep the vector although the text changed: the writer declared so
	gone                   // the row was removed
	alias                  // the row spells this key differently: remove this key
	broken                 // err
)

// words are the outcomes of finished items, for history.
var words = map[action]string{
	nothing: "unchanged", relabel: "unchanged", skip: "skipped", empty: "emptied", gone: "removed", alias: "removed",
}

func (it *item) word() string {
	switch {
	case it.action != vectorIn:
		return words[it.action]
	case !it.paid: // the vectors were already known
		return "reused"
	}
	return "embedded"
}

// touches reports whether the item changes the destination's row.
func (it *item) touches() bool {
	return it.action == vectorIn || it.action == empty && it.row.Stored
}

// lacksText reports whether the item must be embedded but its text was left out.
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

// reached hits a failpoint that exists both for direct changes and for tasks.
func reached(t queue.Task, place string) error {
	if t.IsDirect() {
		return failpoint.Hit("direct/" + place)
	}
	return failpoint.Hit("worker/" + place)
}
