package worker

import (
	"sync"

	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

// errRestless means that a trigger keeps changing the text. It counts as the row's fault.
var errRestless = rows.RefusalError(
	"a trigger of the table changes the text each time a vector is written, so no vector ever matches the text: " +
		"let the trigger name its columns (UPDATE OF ...), or use an embedding table")

// mostMoves is how many times in a row a trigger may change a row's text in a write-back. A trigger that normalises
// text does it once or twice.
const mostMoves = 5

// restless counts the consecutive write-backs in which a trigger changed a row's text.
type restless struct {
	mu   sync.Mutex
	rows map[string]int
}

func (r *restless) moves(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows[key]
}

// watch records the rows of a change whose text a trigger changes; they will be processed again, up to mostMoves times.
// It returns their indexes in c.Write, filled during the write.
func (r *restless) watch(c *rows.Change) (moved *[]int) {
	moved = new([]int)
	c.Moved = func(i int) error {
		if r.moves(c.Write[i].Key) >= mostMoves {
			return errRestless
		}
		*moved = append(*moved, i)
		return nil
	}
	return moved
}

// note counts the rows of a committed write-back; moved are the indexes of those whose text a trigger changed.
func (r *restless) note(written []rows.Write, moved []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// keys in memory; more can only come from a trigger that touches all rows: start over
	const enough = 100_000
	if r.rows == nil || len(r.rows) > enough {
		r.rows = map[string]int{}
	}
	before := make(map[string]int, len(moved))
	for _, i := range moved {
		key := written[i].Key
		before[key] = r.rows[key]
	}
	for i := range written {
		delete(r.rows, written[i].Key)
	}
	for key, n := range before {
		r.rows[key] = n + 1
	}
}
