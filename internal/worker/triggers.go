package worker

import (
	"bytes"
	"sync"

	"github.com/jackc/pgx/v5"
)

// What triggers of the user's may do to a write-back to a column. Each counts as the row's fault, so that the row is
// found and named.
var (
	errSuppressed = refusalError("a trigger or rule of the table suppressed the write of the vector")
	errReplaced   = refusalError("a trigger of the table put something else in place of the vector that was written")
	errRestless   = refusalError("a trigger of the table changes what the text is made of whenever a vector is written, so that none is ever that of the text: " +
		"let the trigger name its columns (UPDATE OF ...), or use an embedding table")
)

// refusalError says what kept a vector out of its row. It holds nothing of the row.
type refusalError string

func (e refusalError) Error() string { return string(e) }

// mostMoves is how many times in a row a trigger may change a row's text in a write-back. One that tidies texts does
// it once or twice.
const mostMoves = 5

// restless counts for rows how many write-backs in a row had a trigger change their text.
type restless struct {
	mu   sync.Mutex
	rows map[string]int
}

func (r *restless) moves(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows[key]
}

// note counts the rows of a write-back that is committed; moved are the places of those whose text a trigger changed.
func (r *restless) note(written []*item, moved *[]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// of keys in memory; more can only be the fault of a trigger that touches all rows, and begin again
	const enough = 100_000
	if r.rows == nil || len(r.rows) > enough {
		r.rows = map[string]int{}
	}
	before := make(map[string]int, len(*moved))
	for _, i := range *moved {
		key := written[i].task.RowKey
		before[key] = r.rows[key]
	}
	for _, it := range written {
		delete(r.rows, it.task.RowKey)
	}
	for key, n := range before {
		r.rows[key] = n + 1
	}
}

// queueAfter adds the query that finds out what triggers have done to the rows just written, where there are
// triggers. It returns where the places of those are put whose text they have changed: they will be looked at again,
// but not for ever.
func (w *Worker) queueAfter(batch *pgx.Batch, written []*item, locked *rowLocks) (moved *[]int, err error) {
	moved = new([]int)
	p := w.o.Pipeline
	if !p.ToColumn() || !p.Triggers || len(written) == 0 {
		return moved, nil
	}
	args, err := keyArrays(p, keysOf(written))
	if err != nil {
		return nil, err
	}
	given := make([][]float32, len(written))
	for i, it := range written {
		given[i] = it.vector
	}
	batch.Queue(w.sql.after, append(args, parameter(p, given))...).Query(func(rows pgx.Rows) error {
		var (
			place  int
			kept   bool
			source []byte
		)
		_, err := pgx.ForEachRow(rows, []any{&place, &kept, &source}, func() error {
			it := written[place-1]
			if !kept {
				return errReplaced
			}
			if bytes.Equal(source, locked.sources[it.task.TaskID]) {
				return nil
			}
			if w.restless.moves(it.task.RowKey) >= mostMoves {
				return errRestless
			}
			*moved = append(*moved, place-1)
			return nil
		})
		return err
	})
	return moved, nil
}
