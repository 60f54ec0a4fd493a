package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// sums are what was measured, or counted, of one pipeline.
type sums struct {
	Embedded, Reused, Failed, Texts, Tokens, Fresh int64
	Price                                          float64
}

func (s *sums) add(w *worker.Stats) {
	s.Embedded, s.Reused = s.Embedded+w.Embedded.Load(), s.Reused+w.Reused.Load()
	s.Failed, s.Texts = s.Failed+w.Failed.Load(), s.Texts+w.Sent.Load()
	s.Tokens = s.Tokens + w.Tokens.Load()
	for _, n := range w.Fresh.Load() {
		s.Fresh += n
	}
	s.Price = float64(s.Tokens) * 2 / 1e6
}

// words tells how many words a text has as its tokens, and refuses one text.
type words struct{ *counter }

func (w words) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	results, err := w.counter.Embed(ctx, kind, texts)
	for i := range results {
		results[i].Tokens = len(strings.Fields(texts[i]))
		if texts[i] == "bad" {
			results[i] = embed.Result{Err: &embed.TextError{Class: embed.Data, Code: "bad", Message: "it is bad"}}
		}
	}
	return results, err
}

// TestProperty_MeasuresSumUpToTheCounters: whatever was done, by way of the queue and at once, by one sidecar and by
// several, is measured once: of each pipeline and in all, by the minute and by ten. make test-long has 100,000 changes.
func TestProperty_MeasuresSumUpToTheCounters(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`CREATE TABLE notes (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, column("docs", "body"), intoTable("notes", "body"))
	r.options = func(o *sidecar.Options) {
		unhurried(o)
		o.Heartbeat = 50 * time.Millisecond // some measurements in each minute
		o.Retry.MaxAttempts = 1
		o.Price = func(*pipeline.Pipeline) pipeline.Price { return pipeline.Price{Million: 2} }
		o.Embedder = func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) { return words{r.embedder}, nil }
	}
	changes := testenv.FromEnvironment(t, "EMBEDSIDECAR_CHANGES", 3000)
	bulk := changes / 3
	first, stopFirst := r.start()
	second, stopSecond := r.start()
	db.MustExec(`INSERT INTO docs (id, body) SELECT i, 'text ' || i % 700 FROM generate_series(1, $1::int) AS i`, bulk)
	db.MustExec(`INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, $1::int) AS i`, bulk)
	db.MustExec(`INSERT INTO notes VALUES (-1, 'bad')`)
	r.settle()
	const writers = 4
	alone := changes / 6
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range alone / writers {
				db.MustExec(`UPDATE docs SET body = $2 WHERE id = $1`, w*(alone/writers)+i+1, fmt.Sprint("alone ", w, i))
				db.MustExec(`UPDATE notes SET body = $2 WHERE id = $1`, i+1, fmt.Sprint("alone ", w, i))
			}
		})
	}
	all.Wait()
	r.settle()
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // many at a time may have gone by way of the queue
		direct := first.Stream().Direct.Load() + second.Stream().Direct.Load()
		if direct < 50 {
			r.alone(5, `UPDATE docs SET body = 'once more ' || $2 || body WHERE id = $1`)
		}
		return direct >= 50, fmt.Sprint(direct, " changes were worked at once")
	})
	states := append(first.States(), second.States()...)
	stopSecond()
	stopFirst()
	want := map[int32]*sums{0: {}} // only now: a batch is counted after it is committed
	for i := range states {
		id := states[i].Pipeline.ID
		if want[id] == nil {
			want[id] = &sums{}
		}
		want[0].add(states[i].Worker)
		want[id].add(states[i].Worker)
	}
	if made := r.count(`SELECT count(*) FROM embedsidecar.history`); made < 2*int64(bulk)*9/10 {
		t.Fatalf("%d looks by way of the queue: too few to tell anything", made)
	}
	for id, counted := range want {
		for _, minutes := range []int{1, 10} {
			got := testenv.Rows[sums](db, `SELECT sum(rows_embedded)::bigint AS embedded, sum(rows_reused)::bigint AS reused,
				sum(rows_failed)::bigint AS failed, sum(texts_embedded)::bigint AS texts, sum(tokens)::bigint AS tokens,
				coalesce((SELECT sum(f.n) FROM embedsidecar.measure AS n, unnest(n.freshness) AS f (n)
					WHERE n.pipeline_id = $1 AND n.minutes = $2), 0)::bigint AS fresh, sum(price) AS price
				FROM embedsidecar.measure WHERE pipeline_id = $1 AND minutes = $2`, id, minutes)[0]
			if difference := got.Price - counted.Price; difference > 1e-9 || difference < -1e-9 {
				t.Errorf("pipeline %d: price %g, want %g", id, got.Price, counted.Price)
			}
			got.Price = counted.Price
			if got != *counted {
				t.Errorf("pipeline %d by %d minutes: %+v, want %+v", id, minutes, got, *counted)
			}
		}
	}
	if n := r.count(`SELECT count(*) FROM embedsidecar.spent AS s WHERE NOT EXISTS (
		SELECT FROM embedsidecar.measure AS m WHERE m.pipeline_id = s.pipeline_id AND m.minutes = 1
		HAVING sum(m.texts_embedded) = s.texts_embedded AND sum(m.tokens) = s.tokens_embedded)`); n != 0 {
		t.Errorf("%d pipelines have other totals", n)
	}
}
