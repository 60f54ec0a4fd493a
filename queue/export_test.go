package queue

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// SetLooks says how often tasks are looked for before the places from which they are claimed, and how often from the
// very beginning.
func (q *Queue) SetLooks(reset, whole time.Duration) { q.cursorReset, q.wholeLook = reset, whole }

// FinishArgs returns the arguments of the statement finish_tasks.
func FinishArgs(worker int64, l Lease, generation int32, outcomes []Outcome) pgx.StrictNamedArgs {
	return finishArgs(worker, l, generation, outcomes)
}
