package quickstart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// nearest is how many rows an answer has.
const nearest = 5

// live runs the sidecar, and answers questions once the first rows are embedded.
func (q *quickstart) live(ctx context.Context) error {
	q.doing("embedding the first rows")
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := q.node.Run(running, app.RunOptions{NoInit: true})
		stop() // without the sidecar no more rows are embedded
		ended <- err
	}()
	err := q.answer(running)
	q.doing("stopping")
	stop()
	failed := <-ended
	q.idle()
	if failed != nil && !errors.Is(failed, context.Canceled) {
		return failed
	}
	if err == nil {
		q.after(context.WithoutCancel(ctx))
	}
	return err
}

// answer waits until the first rows are embedded. It then answers questions until the input ends, while the other rows
// are embedded.
func (q *quickstart) answer(ctx context.Context) error {
	f := &following{q: q, began: time.Now(), drawn: "embedded 0 rows", done: make(chan error, 1)}
	lsn, err := report.Now(ctx, q.pool)
	if err != nil {
		return err
	}
	all, err := lookup.Named(ctx, q.pool, []string{q.Config.Pipelines[0].Name})
	if err != nil {
		return err
	}
	f.pipeline = &all[0]
	wait := caughtup.Wait{
		Pool: q.pool, Slot: q.Config.Slot.Name, LSN: lsn, Redact: q.Redact, Tell: f.tell, Every: q.Every,
		Progress: f.progress,
	}
	go func() {
		_, err := wait.Run(ctx)
		f.done <- err
	}()
	if err := f.first(ctx); err != nil {
		return err
	}
	f.found.Store(true)
	p, err := query.Searchable(ctx, q.pool, q.Config.Pipelines[0].Name)
	if err != nil {
		return err
	}
	return f.prompt(ctx, p)
}

// following is a running backfill, with the questions asked meanwhile.
type following struct {
	q        *quickstart
	pipeline *pipeline.Pipeline
	began    time.Time
	clock    report.Countdown // of the wait
	drawn    string           // last known progress
	found    atomic.Bool      // the first rows can be found
	asking   atomic.Bool      // the user types: progress must not overwrite the line
	done     chan error       // result of the wait, sent once; nil: it was received
}

// embedded returns the progress of the pipeline.
func (f *following) embedded(ctx context.Context) (p report.Pipeline, err error) {
	st, err := report.Options{Only: f.pipeline.ID, AtOnce: true}.Read(ctx, f.q.pool)
	if err != nil || len(st.Pipelines) == 0 {
		return p, err
	}
	return st.Pipelines[0], nil
}

// progress says how many of the rows are embedded.
func (f *following) progress(ctx context.Context) string {
	p, err := f.embedded(ctx)
	if err == nil && p.Rows > 0 {
		now := f.clock.Look(max(0, p.Rows-p.Known), time.Now())
		now.Done, now.Of = min(p.Known, p.Rows), p.Rows
		f.drawn = "embedded " + now.String()
	}
	return f.drawn // waits for other things, such as the slot, are not shown
}

// tell shows the progress, or else what is waited for.
func (f *following) tell(what string) {
	switch bar := strings.HasPrefix(what, "embedded "); {
	case bar && !f.found.Load(): // doing shows progress until then
		return
	case what != "" && !bar:
		if time.Since(f.began) < 30*time.Second { // not of interest at the beginning
			return
		}
		what = "waiting: " + what
	}
	if !f.asking.Load() || f.q.Every == 0 {
		f.q.Waiting(what)
	}
}

// first waits for the first embedded rows, or for the end of the wait.
func (f *following) first(ctx context.Context) error {
	const often, seldom = 100 * time.Millisecond, time.Second
	for pause := often; ; pause = min(2*pause, seldom) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-f.done:
			return f.over(ctx, err)
		case <-time.After(pause):
		}
		p, err := f.embedded(ctx)
		if err != nil || p.Known == 0 || p.Known >= p.Rows {
			continue // f.done reports errors and the end
		}
		f.q.idle()
		f.q.Say("%d of %d rows can be found. %s", p.Known, p.Rows, f.asks(ctx))
		return nil
	}
}

// over reports that the wait has ended. If some rows failed, the others can be searched.
func (f *following) over(ctx context.Context, err error) error {
	f.done = nil
	f.q.idle()
	what := "all embedded"
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case problem.Of(err) == problem.Failed:
		f.q.Say("%s", err)
		for _, hint := range problem.Hints(err) {
			f.q.Say("  %s", hint)
		}
		what = "the other rows embedded"
	case err != nil:
		return err
	}
	asks := ""
	if !f.asking.Load() { // otherwise it was shown before
		asks = " " + f.asks(ctx)
	}
	f.q.Say("%s in %s, and kept up to date while this runs.%s", what,
		wording.Age(math.Round(time.Since(f.began).Seconds())), asks)
	return nil
}

// asks returns the invitation to ask a question.
func (f *following) asks(ctx context.Context) string {
	q := f.q
	if q.example = q.exampleOf(ctx, f.pipeline); q.example == "" {
		return "Ask something; Ctrl-D ends."
	}
	return fmt.Sprintf("Ask something (Enter: %s); Ctrl-D ends.", q.example)
}

// exampleOf returns an example question from rows that are embedded; "": none.
func (q *quickstart) exampleOf(ctx context.Context, p *pipeline.Pipeline) string {
	if !q.Answers {
		return ""
	}
	const few = " LIMIT 20"
	order := lists.Map(p.Key, func(k pipeline.KeyColumn) string {
		return "r." + database.Quote(k.Name) + " USING " + k.Greater
	})
	from := p.Rows() + " AS r WHERE " + p.VectorOf("r") + " IS NOT NULL ORDER BY " + strings.Join(order, ", ") + few
	if !p.InSource() {
		from = "(SELECT * FROM " + p.Into() + few + ") AS e JOIN " + p.Rows() + " AS r ON " + p.SameKey("r", "e")
	}
	rows, _ := q.pool.Query(ctx, "SELECT coalesce(left("+p.TextExpression()+", 200), '') FROM "+from)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return ""
	}
	return example(texts)
}

// sentence matches the first line of a text, or the first sentence of it.
var sentence = regexp.MustCompile(`^\s*([^\r\n]*?)(?:[.!?。！？](?:\s|$)|[\r\n]|$)`)

// example returns the first sentence of the texts that is short enough for a question, or else some first words.
func example(texts []string) string {
	const few, most, cut = 2, 9, 5 // words
	words := ""
	for _, text := range texts {
		found := strings.Fields(sentence.FindStringSubmatch(text)[1])
		if len(found) >= few && len(found) <= most {
			return strings.Join(found, " ")
		}
		if words == "" {
			all := strings.Fields(text)
			words = strings.Join(all[:min(len(all), cut)], " ")
		}
	}
	return words
}

// prompt answers one line after another.
func (f *following) prompt(ctx context.Context, p *pipeline.Pipeline) error {
	q := f.q
	f.asking.Store(true)
	lines := q.Lines(ctx)
	for {
		if lines != nil {
			q.Prompt()
		}
		select {
		case <-ctx.Done():
			return f.interrupted(ctx)
		case err := <-f.done:
			if err := f.over(ctx, err); err != nil || lines == nil {
				return err
			}
		case line, more := <-lines:
			if more {
				f.answer(ctx, p, strings.TrimSpace(line))
				continue
			}
			if q.Answers || f.done == nil {
				return nil
			}
			lines = nil // no user is there to end the command: embed the other rows first
			f.asking.Store(false)
		}
	}
}

// interrupted returns nil once everything is embedded: then an interrupt is a normal end.
func (f *following) interrupted(ctx context.Context) error {
	if f.done == nil {
		return nil
	}
	return context.Cause(ctx)
}

// answer shows the rows found for a line, and how much of the table was searched.
func (f *following) answer(ctx context.Context, p *pipeline.Pipeline, line string) {
	q := f.q
	if line = cmp.Or(line, q.example); line == "" {
		return
	}
	q.asked = line
	if f.done != nil {
		if now, err := f.embedded(ctx); err == nil && now.Among() != "" {
			q.Say("%s", now.Among())
		}
	}
	if err := q.search(ctx, p, line); err != nil && ctx.Err() == nil {
		q.Say("error: %s", err)
	}
}

// search shows the rows nearest to a text.
func (q *quickstart) search(ctx context.Context, p *pipeline.Pipeline, text string) error {
	s := search.Searcher{DB: q.pool, Embed: query.Embedder(q.node.Plugins())}
	found, err := s.Near(ctx, p, search.Request{Text: text, Rows: nearest})
	if err != nil {
		return query.Classified(err)
	}
	return q.Show(p, found.Hits)
}
