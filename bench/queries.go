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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureQueries measures how long somebody who asks waits: while a backfill runs, and when nothing else is to do.
func measureQueries(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("queries", "One query at a time over HTTP, real model")
	if err := p.queries(ctx, f); err != nil {
		return nil, err
	}
	return []section{f.done()}, nil
}

// backfilled is more rows than a backfill gets through while it is asked; those that are left over are deleted.
const backfilled = 20_000

func (p *place) queries(ctx context.Context, f *figures) (err error) {
	pool, err := p.docs(ctx, "queries", 0)
	if err != nil {
		return err
	}
	texts := p.mixed(backfilled)
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"public", "docs"}, []string{"id", "body"},
		pgx.CopyFromSlice(len(texts), func(i int) ([]any, error) {
			return []any{i + 1, fmt.Sprintf("%s (%d)", texts[i], i)},
				nil
		}))
	if err != nil {
		return fmt.Errorf("fill the table: %w", err)
	}
	s, err := p.start(pool, append([]string{"--http", "127.0.0.1:0", "--no-auth"}, onnx...)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	c, err := s.client(ctx, p)
	if err != nil {
		return err
	}
	const first = 500 // rows: by now the backfill runs at its full speed
	if err := s.reached(ctx, first); err != nil {
		return err
	}
	busy, err := c.ask(ctx, s, p.questions, nil)
	if err != nil {
		return err
	}
	// What is left of the backfill is not waited for.
	done, err := rowsDone(ctx, pool)
	if err != nil {
		return err
	}
	if done >= backfilled {
		return errors.New("the backfill ended while it was asked: these figures would say nothing")
	}
	if _, err := pool.Exec(ctx, "DELETE FROM public.docs AS d WHERE NOT EXISTS (SELECT FROM public.docs_embedding AS e WHERE e.id = d.id)"); err != nil {
		return fmt.Errorf("end the backfill: %w", err)
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	bare, err := p.startBare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.end()) }()
	// What the model gets at a time, which a query may have to wait for.
	longest := texts[len(lengths)-1]
	var runs []float64
	idle, err := c.ask(ctx, s, p.questions, func() error {
		took, err := bare.batch([]string{longest, longest}) // about 250 tokens each
		runs = append(runs, float64(took.Microseconds())/1000)
		return err
	})
	if err != nil {
		return err
	}
	run := median(runs)
	f.add(bulkRun, "ms", run)
	for i, what := range asked {
		addTimes(f, what+", idle", idle[i])
		addTimes(f, what+", during a backfill", busy[i])
		for q, name := range map[float64]string{0.5: ", p50", 0.99: ", p99"} {
			alone, beside := quantile(idle[i], q), quantile(busy[i], q)
			f.note(what+", during a backfill"+name, "times idle", beside/alone)
			f.note(what+", during a backfill"+name, "times one run + idle", beside/(run+alone))
		}
	}
	p.say("queries: %d of each kind, idle and during a backfill", p.questions)
	return p.verified(ctx, s)
}

const bulkRun = "one run of the bare model, 512 tokens"

// asked are the kinds of queries.
var asked = []string{"POST /v1/embeddings", "POST .../search"}

// client asks a sidecar.
type client struct {
	place *place
	base  string
	n     int // questions so far: no text comes twice, as it would be remembered
}

var answersAt = regexp.MustCompile(`queries are answered"?.*address"?[=:]"?([0-9.:]+)`)

// client waits until the sidecar answers queries.
func (s *sidecar) client(ctx context.Context, p *place) (*client, error) {
	c, ok := s.runner.(*child)
	if !ok {
		return nil, errors.New("only a sidecar in a process of its own is asked over HTTP")
	}
	for began := time.Now(); ; {
		log, err := os.ReadFile(c.log)
		if err != nil {
			return nil, err
		}
		if match := answersAt.FindSubmatch(log); match != nil {
			return &client{place: p, base: "http://" + string(match[1])}, nil
		}
		if dead := s.alive(); dead != nil {
			return nil, dead
		}
		if time.Since(began) > timeout {
			return nil, fmt.Errorf("no queries are answered within %s: %s", timeout, s.tail())
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// ask asks so many questions of each kind, in turns with something beside, and returns how long each took in ms.
func (c *client) ask(ctx context.Context, s *sidecar, questions int, beside func() error) (times [2][]float64,
	err error,
) {
	const (
		warmUp       = 5
		longestPause = 20 * time.Millisecond
	)
	for i := range warmUp + questions {
		for kind := range asked {
			if err := pause(ctx, rand.N(longestPause)); err != nil {
				return times, err
			}
			took, err := c.once(ctx, kind)
			if err != nil {
				return times, errors.Join(err, s.alive())
			}
			if i >= warmUp {
				times[kind] = append(times[kind], float64(took.Microseconds())/1000)
			}
		}
		if beside == nil {
			continue
		}
		if err := beside(); err != nil {
			return times, err
		}
	}
	return times, nil
}

func (c *client) once(ctx context.Context, kind int) (time.Duration, error) {
	c.n++
	text := fmt.Sprintf("what is %s (%d)", c.place.summary[c.n*11%len(c.place.summary)], c.n)
	path, body := "/v1/embeddings", map[string]any{"input": text, "input_type": "query", "encoding_format": "base64"}
	if kind == 1 {
		path, body = "/v1/pipelines/public.docs/search", map[string]any{"text": text, "k": 10}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(response.Body)
	took := time.Since(began)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("POST %s: %s: %.300s", path, response.Status, answer)
	}
	return took, nil
}

// reached waits until so many rows have their vector.
func (s *sidecar) reached(ctx context.Context, rows int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		done, err := rowsDone(ctx, s.pool)
		if err == nil && done >= rows {
			return nil
		}
		if dead := s.alive(); dead != nil {
			return dead
		}
		if err != nil && (ctx.Err() != nil || !notYet(err)) {
			return fmt.Errorf("wait for %d rows: %w: %s", rows, err, s.tail())
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %d rows: %w: %s", rows, err, s.tail())
		}
	}
}

func rowsDone(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.ledger").Scan(&n)
	return n, err
}
