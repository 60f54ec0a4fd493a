package quickstart

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// nearest is how many rows an answer has.
const nearest = 5

// live runs the sidecar, waits until it has caught up, and answers.
func (q *quickstart) live(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := q.node.Run(running, app.RunOptions{NoInit: true})
		stop() // nobody is left who would embed what is waited for
		ended <- err
	}()
	err := q.answer(running)
	stop()
	if failed := <-ended; failed != nil && !errors.Is(failed, context.Canceled) {
		return failed
	}
	if err == nil {
		q.after(context.WithoutCancel(ctx))
	}
	return err
}

// answer waits until the rows have their vectors, and answers what is asked until nobody asks any more.
func (q *quickstart) answer(ctx context.Context) error {
	name := q.Config.Pipelines[0].Name
	began := time.Now()
	lsn, err := report.Now(ctx, q.pool)
	if err != nil {
		return err
	}
	_, err = caughtup.Wait{
		Pool: q.pool, Slot: q.Config.Slot.Name, LSN: lsn, Redact: q.Redact, Tell: q.Waiting, Every: q.Every,
	}.Run(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if problem.Of(err) == problem.Failed { // rows that cannot be embedded keep nobody from searching the others
		q.Say("%s", err)
		for _, hint := range problem.Hints(err) {
			q.Say("  %s", hint)
		}
	} else if err != nil {
		return err
	}
	p, err := query.Searchable(ctx, q.pool, name)
	if err != nil {
		return err
	}
	q.Say("embedded in %s, and kept up to date while this runs. Ask something; Ctrl-D ends.",
		time.Since(began).Round(time.Second))
	return q.prompt(ctx, p)
}

// prompt answers line after line.
func (q *quickstart) prompt(ctx context.Context, p *pipeline.Pipeline) error {
	lines := q.Lines(ctx)
	for {
		q.Prompt()
		select {
		case <-ctx.Done():
			return nil // that is how one ends it, too
		case line, more := <-lines:
			if !more {
				return nil
			}
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if err := q.search(ctx, p, line); err != nil && ctx.Err() == nil {
				q.Say("error: %s", err)
			}
		}
	}
}

// search shows the rows that are nearest to a text.
func (q *quickstart) search(ctx context.Context, p *pipeline.Pipeline, text string) error {
	vector, err := query.Vector(ctx, q.node.Plugins(), p, text)
	if err != nil {
		return err
	}
	hits, err := search.Find(ctx, q.pool, p, search.Request{Vector: vector, Text: text, Rows: nearest})
	if err != nil {
		return query.Classified(p, err)
	}
	return q.Show(p, hits)
}
