package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestLimit_OfABackfillHoldsBackNoLiveChange: two pipelines share it, no row of their backfills is embedded too early,
// live changes are embedded meanwhile, and the state says what holds the backfill back.
func TestLimit_OfABackfillHoldsBackNoLiveChange(t *testing.T) {
	t.Parallel()
	const rows, perSecond = 10000, 5 // it takes longer than any test
	db := testenv.DB(t)
	specs := []pipeline.Spec{intoTable("docs", "body"), column("notes", "body")}
	for _, s := range specs {
		db.MustExec(`CREATE TABLE ` + s.Table + ` (id bigint PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO `+s.Table+` SELECT i, '`+s.Table+` ' || i FROM generate_series(1, $1::int) AS i`, rows)
	}
	r := newRig(t, db, specs...)
	var (
		mu    sync.Mutex
		began time.Time
		bulk  int
		early string
	)
	r.embedder.hook(func(_ context.Context, texts []string) error {
		mu.Lock()
		defer mu.Unlock()
		for _, text := range texts {
			if !strings.HasPrefix(text, "live") {
				bulk++
			}
		}
		if most := perSecond * (1 + time.Since(began).Seconds()); float64(bulk) > most+1 && early == "" {
			early = fmt.Sprintf("%d rows after %s, at most %.1f", bulk, time.Since(began), most)
		}
		return nil
	})
	r.options = func(o *sidecar.Options) {
		began = time.Now()
		o.Limit = limit.New(limit.Rates{}, limit.Rates{Rows: perSecond}, began)
	}
	r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		reason := testenv.Value[string](db, `SELECT string_agg(reason, ' ') FROM embedsidecar.states()`)
		return strings.Contains(reason, "held back by limits.backfill_rows_per_second"), reason
	})
	db.MustExec(`UPDATE docs SET body = 'live ' || id WHERE id <= 20`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		live := r.embedder.sent("live 1", "live 10", "live 20")
		return live == 3 && bulk > 0, fmt.Sprintf("%d live texts, %d others", live, bulk)
	})
	mu.Lock()
	defer mu.Unlock()
	if early != "" {
		t.Error(early)
	}
}

// TestLimit_OfAllWorkIsKept: by changes that are worked at once, too, and by tokens.
func TestLimit_OfAllWorkIsKept(t *testing.T) {
	t.Parallel()
	for name, rates := range map[string]limit.Rates{"rows": {Rows: 20}, "tokens": {Tokens: 60}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
			r := newRig(t, db, intoTable("docs", "body"))
			var (
				mu    sync.Mutex
				began time.Time
				sent  int
				early string
			)
			r.embedder.hook(func(_ context.Context, texts []string) error {
				mu.Lock()
				defer mu.Unlock()
				sent += len(texts) // each of about 3 tokens
				if most := 20 * (3 + time.Since(began).Seconds()); float64(sent) > most+20 && early == "" {
					early = fmt.Sprintf("%d rows after %s, at most %.1f", sent, time.Since(began), most)
				}
				return nil
			})
			r.options = func(o *sidecar.Options) {
				o.NoDirect, began = false, time.Now()
				o.Limit = limit.New(rates, limit.Rates{}, began)
			}
			r.start()
			for i := range 30 {
				db.MustExec(`INSERT INTO docs SELECT i, 'a text' || i FROM generate_series($1::int * 4, $1::int * 4 + 3) AS i`, i)
			}
			r.settle()
			r.embedder.hook(nil)
			r.verify()
			if early != "" {
				t.Error(early)
			}
		})
	}
}
