package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
)

// backfilled is more rows than a backfill completes during the queries; the rest is deleted.
const backfilled = 20_000

// measureQueries measures the latency of queries during a backfill and while idle.
func measureQueries(ctx context.Context, p *place) {
	f := newFigures("One query at a time over HTTP, real model")
	defer p.show(f)
	pool := p.docs(ctx, "queries", 0)
	texts := p.mixed(backfilled)
	copyTexts(ctx, pool, backfilled, func(i int) (int, string) { return i + 1, fmt.Sprintf("%s (%d)", texts[i], i) })
	s := p.sidecar(pool, append([]string{"--http", "127.0.0.1:0", "--no-auth"}, onnx...)...)
	c := &client{place: p, base: answersAt(ctx, s, pool)}
	busy := c.ask(ctx, func() {})
	left := must(pool.Exec(ctx, `DELETE FROM public.docs AS d
		WHERE NOT EXISTS (SELECT FROM public.docs_embedding AS e WHERE e.id = d.id)`))
	if left.RowsAffected() == 0 {
		check(errors.New("the backfill ended during the queries: the figures would be meaningless"))
	}
	settle(ctx, s, pool)
	bare := p.bareModel(ctx)
	// The model's largest run, which a query may have to wait for.
	longest := texts[len(lengths)-1]
	var runs []float64
	idle := c.ask(ctx, func() {
		began := time.Now()
		must(bare.Embed(ctx, embed.Document, []string{longest, longest})) // about 250 tokens each
		runs = append(runs, millis(time.Since(began)))
	})
	run := quantile(runs, 0.5)
	f.add("one run of the bare model, 512 tokens", "ms", run)
	for i, what := range asked {
		f.times(what+", idle", idle[i])
		f.times(what+", during a backfill", busy[i])
		for q, name := range map[float64]string{0.5: ", p50", 0.99: ", p99"} {
			alone, beside := quantile(idle[i], q), quantile(busy[i], q)
			f.note(what+", during a backfill"+name, "times idle", beside/alone)
			f.note(what+", during a backfill"+name, "times one run + idle", beside/(run+alone))
		}
	}
	p.say("queries: %d of each kind, idle and during a backfill", p.questions)
	p.verified(ctx, s, pool)
}

// asked are the kinds of queries.
var asked = []string{"POST /v1/embeddings", "POST .../search"}

var addressPattern = regexp.MustCompile(`queries are answered"?.*address"?[=:]"?([0-9.:]+)`)

// answersAt waits until the backfill runs at full speed, and returns the URL for queries.
func answersAt(ctx context.Context, s *child, pool *pgxpool.Pool) string {
	s.until(ctx, pool, 20*time.Millisecond, "SELECT count(*) >= 500 FROM embedsidecar.ledger")
	match := addressPattern.FindSubmatch(must(os.ReadFile(s.log)))
	if match == nil {
		check(s.failed("its log does not say where queries are answered"))
	}
	return "http://" + string(match[1])
}

// client sends queries to a sidecar.
type client struct {
	place *place
	base  string
	n     int // queries so far; texts do not repeat, as they would be cached
}

// ask sends queries of each kind, alternating with beside, and returns their latencies in ms.
func (c *client) ask(ctx context.Context, beside func()) (times [2][]float64) {
	const (
		warmUp       = 5
		longestPause = 20 * time.Millisecond
	)
	for i := range warmUp + c.place.questions {
		for kind := range asked {
			check(pause(ctx, rand.N(longestPause)))
			took := c.once(ctx, kind)
			if i >= warmUp {
				times[kind] = append(times[kind], millis(took))
			}
		}
		beside()
	}
	return times
}

func (c *client) once(ctx context.Context, kind int) time.Duration {
	c.n++
	text := fmt.Sprintf("what is %s (%d)", c.place.summary[c.n*11%len(c.place.summary)], c.n)
	path, body := "/v1/embeddings", map[string]any{"input": text, "input_type": "query", "encoding_format": "base64"}
	if kind == 1 {
		path, body = "/v1/pipelines/public.docs/search", map[string]any{"text": text, "k": 10}
	}
	r := must(http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(must(json.Marshal(body)))))
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := http.DefaultClient.Do(r)
	check(err)
	defer func() { _ = response.Body.Close() }()
	answer := must(io.ReadAll(response.Body))
	took := time.Since(began)
	if response.StatusCode != http.StatusOK {
		check(fmt.Errorf("POST %s: %s: %.300s", path, response.Status, answer))
	}
	return took
}
