package sidecar

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/spread"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// spent are the costs and outcomes of a pipeline's rows.
type spent struct {
	tokens, texts, reused, unchanged, cut int64
	rowsEmbedded, rowsReused, rowsFailed  int64
	fresh                                 spread.Counts
	price                                 float64 // of the tokens
	batched                               int64   // tokens of batch jobs, included in tokens
	searched                              spend.Searched
}

func (s spent) add(o spent) spent {
	return spent{
		s.tokens + o.tokens, s.texts + o.texts, s.reused + o.reused, s.unchanged + o.unchanged, s.cut + o.cut,
		s.rowsEmbedded + o.rowsEmbedded, s.rowsReused + o.rowsReused, s.rowsFailed + o.rowsFailed,
		s.fresh.Add(o.fresh), s.price + o.price, s.batched + o.batched,
		spend.Searched{Tokens: s.searched.Tokens + o.searched.Tokens, Price: s.searched.Price + o.searched.Price},
	}
}

func (s spent) since(o spent) spent {
	return s.add(spent{
		-o.tokens, -o.texts, -o.reused, -o.unchanged, -o.cut, -o.rowsEmbedded, -o.rowsReused, -o.rowsFailed,
		spread.Counts{}.Since(o.fresh), -o.price, -o.batched,
		spend.Searched{},
	})
}

// spentOf returns what a worker has used since it started, without the price.
func spentOf(w *worker.Stats) spent {
	batched := w.Batched.Load()
	return spent{
		w.Tokens.Load() + batched, w.Sent.Load(), w.Known.Load() + w.Remembered.Load(), w.Unchanged.Load(), w.Cut.Load(),
		w.Embedded.Load(), w.Reused.Load(), w.Failed.Load(), w.Fresh.Load(), 0, batched,
		spend.Searched{},
	}
}

// streamed counts changes that needed no processing of their own, and ignored hints.
type streamed struct{ unchanged, joined, ignored int64 }

// measured returns how often counters are stored: once a minute with the default heartbeat.
func (s *Sidecar) measured() time.Duration { return 6 * s.o.Heartbeat }

// untilMeasured returns the time until counters are next stored: after each minute of the clock, to be counted for it.
// The slots of a server are spread over a part of the minute.
func (s *Sidecar) untilMeasured(now time.Time) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.o.Slot))
	period := s.measured()
	const part = 10 // fraction of the period that slots are spread over
	offset := time.Duration(h.Sum32()) % max(period/part, 1)
	return now.Add(-offset).Truncate(period).Add(period + offset).Sub(now)
}

// noteSpent stores what was used and done since the last time. An idle sidecar writes nothing. Stopping the sidecar
// does not cancel it: a stored result could be counted twice.
func (s *Sidecar) noteSpent(ctx context.Context) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := s.settleStoring(ctx); err != nil {
		s.o.Log.DebugContext(ctx, "could not find out whether usage counters were saved", "error", err)
		return
	}
	s.mu.Lock()
	for id, r := range s.running {
		s.settleSpentLocked(id, r)
	}
	for id, n := range s.book.Searches() {
		s.spent[id] = s.spent[id].add(spent{searched: n})
	}
	g := &storing{spent: s.spent, streamed: s.streamed}
	s.spent = map[int32]spent{}
	s.mu.Unlock()
	if stats := s.Stream(); stats != nil {
		g.streamed = streamed{stats.Dropped.Load(), stats.Joined.Load(), stats.Forged.Load()}
	}
	if err := s.store(ctx, g); err != nil {
		s.o.Log.DebugContext(ctx, "could not save usage counters", "error", err)
		s.storing = g
		return
	}
	s.streamed = g.streamed
}

// storing is a write whose commit may not be known.
type storing struct {
	xid      string // "": not started
	spent    map[int32]spent
	streamed streamed
}

// settleStoring finds out whether a write without an answer was committed. If not, it is stored again. Only
// housekeeping and, at the end, farewell call it.
func (s *Sidecar) settleStoring(ctx context.Context) error {
	g := s.storing
	if g == nil {
		return nil
	}
	stored := false
	if g.xid != "" {
		var status *string // NULL: too old
		err := s.o.Pool.QueryRow(ctx, "SELECT pg_xact_status($1::text::xid8)", g.xid).Scan(&status)
		if err != nil && !database.HasCode(err, pgerrcode.InvalidParameterValue) { // the server went back in time
			return err
		}
		if status != nil && *status == "in progress" {
			return errors.New("their transaction is still in progress")
		}
		stored = err == nil && (status == nil || *status == "committed")
	}
	if s.storing = nil; stored {
		s.streamed = g.streamed
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range g.spent {
		s.spent[id] = s.spent[id].add(n)
	}
	return nil
}

func (s *Sidecar) store(ctx context.Context, g *storing) error {
	if len(g.spent) == 0 && g.streamed == s.streamed {
		return s.storeSpent(ctx, s.o.Pool, nil) // records queue sizes only
	}
	return database.Transact(ctx, s.o.Pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&g.xid); err != nil {
			return err
		}
		if err := s.storeSpent(ctx, tx, g.spent); err != nil || g.streamed == s.streamed {
			return err
		}
		_, err := tx.Exec(ctx, sqlfiles.Query("add_streamed"), pgx.StrictNamedArgs{
			"slot": s.o.Slot, "unchanged": g.streamed.unchanged - s.streamed.unchanged,
			"joined": g.streamed.joined - s.streamed.joined, "hints_ignored": g.streamed.ignored - s.streamed.ignored,
		})
		return err
	})
}

func (s *Sidecar) storeSpent(ctx context.Context, db database.Querier, todo map[int32]spent) error {
	var ids []int32
	var tokens, texts, reused, unchanged, cut, rowsEmbedded, rowsReused, rowsFailed []int64
	var prices, searchPrices []float64
	var searchTokens []int64
	var fresh []string // a PostgreSQL array of arrays needs equal lengths
	for id, n := range todo {
		ids, tokens, texts = append(ids, id), append(tokens, n.tokens), append(texts, n.texts)
		reused, unchanged, cut = append(reused, n.reused), append(unchanged, n.unchanged), append(cut, n.cut)
		rowsEmbedded, rowsReused = append(rowsEmbedded, n.rowsEmbedded), append(rowsReused, n.rowsReused)
		rowsFailed, prices = append(rowsFailed, n.rowsFailed), append(prices, n.price+n.searched.Price)
		searchTokens, searchPrices = append(searchTokens, n.searched.Tokens), append(searchPrices, n.searched.Price)
		fresh = append(fresh, arrayText(n.fresh.List()))
	}
	_, err := db.Exec(ctx, sqlfiles.Query("add_spent"), pgx.StrictNamedArgs{
		"pipeline_ids": ids, "tokens": tokens, "embedded": texts, "reused": reused, "unchanged": unchanged, "cut": cut,
		"rows_embedded": rowsEmbedded, "rows_reused": rowsReused, "rows_failed": rowsFailed, "prices": prices,
		"search_tokens": searchTokens, "search_prices": searchPrices, "freshness": fresh, "ago": s.measured() / 2, //nolint:mnd // in the midst of the time it was done in
	})
	return err
}

// settleSpentLocked moves what a worker has used to what is to be stored.
func (s *Sidecar) settleSpentLocked(id int32, r *running) {
	now := spentOf(r.worker.Stats())
	if now == r.counted {
		return
	}
	more := now.since(r.counted)
	if s.o.Price != nil {
		price := s.o.Price(&r.pipeline)
		more.price = (float64(more.tokens-more.batched)*price.Million + float64(more.batched)*price.Batch) / 1e6 //nolint:mnd // a million
	}
	s.spent[id], r.counted = s.spent[id].add(more), now
}
