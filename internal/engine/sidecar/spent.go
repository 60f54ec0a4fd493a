package sidecar

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/replication"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// spent is what the rows of a pipeline have cost, and how many of them cost nothing.
type spent struct{ tokens, embedded, reused, unchanged, cut int64 }

func (s spent) add(o spent) spent {
	return spent{
		s.tokens + o.tokens, s.embedded + o.embedded, s.reused + o.reused, s.unchanged + o.unchanged, s.cut + o.cut,
	}
}

func (s spent) since(o spent) spent {
	return s.add(spent{-o.tokens, -o.embedded, -o.reused, -o.unchanged, -o.cut})
}

// spentOf is what a worker has spent since it began.
func spentOf(w *worker.Stats) spent {
	return spent{
		w.Tokens.Load(), w.Sent.Load(), w.Known.Load() + w.Remembered.Load(), w.Unchanged.Load(), w.Cut.Load(),
	}
}

// streamed is how many changes needed no look of their own, and how many hints were ignored.
type streamed struct{ unchanged, joined, ignored int64 }

// noteSpent stores what was spent and saved since the last time. While nothing is done it asks for nothing.
func (s *Sidecar) noteSpent(ctx context.Context) {
	s.mu.Lock()
	for id, r := range s.running {
		s.settleSpentLocked(id, r)
	}
	todo := s.spent
	s.spent = map[int32]spent{}
	s.mu.Unlock()
	if err := s.storeSpent(ctx, todo); err != nil {
		s.o.Log.DebugContext(ctx, "what was spent is not stored yet", "error", err)
		s.mu.Lock()
		for id, n := range todo {
			s.spent[id] = s.spent[id].add(n)
		}
		s.mu.Unlock()
	}
	if err := s.noteStreamed(ctx, s.Stream()); err != nil {
		s.o.Log.DebugContext(ctx, "what was saved is not stored yet", "error", err)
	}
}

func (s *Sidecar) storeSpent(ctx context.Context, todo map[int32]spent) error {
	if len(todo) == 0 {
		return nil
	}
	var ids []int32
	var tokens, embedded, reused, unchanged, cut []int64
	for id, n := range todo {
		ids, tokens, embedded = append(ids, id), append(tokens, n.tokens), append(embedded, n.embedded)
		reused, unchanged, cut = append(reused, n.reused), append(unchanged, n.unchanged), append(cut, n.cut)
	}
	_, err := s.o.Pool.Exec(ctx, sqlfiles.Query("add_spent"), pgx.StrictNamedArgs{
		"pipeline_ids": ids, "tokens": tokens, "embedded": embedded, "reused": reused, "unchanged": unchanged, "cut": cut,
	})
	return err
}

// noteStreamed stores what the stream has saved since the last time. Only housekeeping calls it, and at the
// end the farewell.
func (s *Sidecar) noteStreamed(ctx context.Context, stats *replication.Stats) error {
	if stats == nil {
		return nil
	}
	now := streamed{stats.Dropped.Load(), stats.Joined.Load(), stats.Forged.Load()}
	if now == s.streamed {
		return nil
	}
	_, err := s.o.Pool.Exec(ctx, sqlfiles.Query("add_streamed"), pgx.StrictNamedArgs{
		"slot": s.o.Slot, "unchanged": now.unchanged - s.streamed.unchanged, "joined": now.joined - s.streamed.joined,
		"hints_ignored": now.ignored - s.streamed.ignored,
	})
	if err == nil {
		s.streamed = now
	}
	return err
}

// settleSpentLocked moves what a worker has spent to what is to be stored.
func (s *Sidecar) settleSpentLocked(id int32, r *running) {
	if now := spentOf(r.worker.Stats()); now != r.counted {
		s.spent[id] = s.spent[id].add(now.since(r.counted))
		r.counted = now
	}
}
