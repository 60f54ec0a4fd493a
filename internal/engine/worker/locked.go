package worker

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

// writable postpones items whose vectors cannot be written now because another session locks the table or the rows:
// each attempt would pay for an embedding that is not stored. It checks only after recent lock conflicts.
func (w *Worker) writable(ctx context.Context, items []item) ([]item, error) {
	if items[0].task.IsDirect() || !w.met.lately() {
		return items, nil
	}
	var writes, others []item
	for i := range items {
		if items[i].action == vectorIn {
			writes = append(writes, items[i])
		} else {
			others = append(others, items[i])
		}
	}
	if len(writes) == 0 {
		return items, nil
	}
	waiting, err := w.locked(ctx, writes, &others)
	if err != nil || len(waiting) == 0 { // the write-back reports other errors
		return items, nil //nolint:nilerr // see above
	}
	w.met.note()
	w.stats.Locked.Add(int64(len(waiting)))
	return others, w.postpone(ctx, tasksOf(waiting), embed.Transient, "locked",
		"the row, or the table that its vector goes to, is locked by another session",
		lockedDelay(waiting[0].task, time.Now()))
}

// locked returns the items blocked by a lock and adds the others to free.
func (w *Worker) locked(ctx context.Context, writes []item, free *[]item) (waiting []item, err error) {
	switch err := database.Limited(ctx, longestWrite, w.table.TryWrite); {
	case rows.Fault(err) == database.Locked:
		return writes, nil
	case err != nil:
		return nil, err
	}
	for len(writes) > 0 {
		some := writes[:w.portion(writes)]
		keys := make([]string, len(some))
		for i := range some {
			keys[i] = some[i].task.RowKey
		}
		locks, err := w.table.Free(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i := range some {
			if locks.Hold(keys[i]) {
				*free = append(*free, some[i])
			} else {
				waiting = append(waiting, some[i])
			}
		}
		writes = writes[len(some):]
	}
	return waiting, nil
}
