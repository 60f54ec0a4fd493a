// Package quickstart leads from the URL of a database to a search in its rows: it looks, suggests what to embed, tells
// what it would do, asks once, sets up, runs the sidecar and answers what is asked. All of that is done by the packages
// that do it for every other command; this one has their order, and what a person is told on the way.
package quickstart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
)

// Options are what a quick start is made of, and who is told.
type Options struct {
	Config *config.Config // with the pipeline that is wanted, or none
	Table  string         // to suggest columns of; "": of the one with the most text
	Log    *slog.Logger
	Redact func(string) string // takes what is secret out of a text
	DryRun bool                // tell all of it, and do nothing
	Wait   bool                // a user is there, who can mend what is not ready
	SQL    bool                // show the statements as well
	// Program is what the user calls the program.
	Program string
	Save    string      // the file that the configuration is written to; "": it is shown
	Node    app.Options // of the sidecar

	Say     func(format string, args ...any)
	Steps   func(list []step.Step, verb string) // is told what is made, or would be
	Waiting func(what string)                   // is told what is waited for
	Every   time.Duration                       // how often, and "" at the end; 0: seldom
	// Agree asks whether to go on, and calls show, if there is one, as often as that is asked for; its error is that
	// nobody is there to be asked.
	Agree func(ctx context.Context, question string, show func()) (bool, error)
	// Ask asks what may be answered by a default, which is taken where nobody is there.
	Ask func(ctx context.Context, question string) (bool, error)
	// Chunks says whether texts that are longer than the model reads are cut into chunks: "yes", "no", or "": Ask.
	Chunks string
	// Whole: the end of the input is waited for until all rows are embedded; nobody sits there who would end it.
	Whole bool
	// Lines are what is asked for, line by line; it is closed at the end of the input.
	Lines func(ctx context.Context) <-chan string
	// Prompt is called when the next line is waited for.
	Prompt func()
	Show   func(p *pipeline.Pipeline, hits []search.Hit) error
}

// described is what the embedder of each pipeline says of itself.
type described = map[string]embed.Description

// quickstart is one under way.
type quickstart struct {
	Options

	pool, server *pgxpool.Pool // the one that looks, and the one that sets up: straight to the server
	node         *app.Node
	file         *file
	lacks        []lack
	known        *pipeline.Pipeline // as it is set up already; nil: it is not
	idle         func()             // ends what doing began
	loaded       func(stop bool)    // waits until the model is loaded, or has that stopped; nil: nobody loads it
	release      int                // of the server: 18
	database     string             // its name
	changed      bool               // something of ours may be in the database
	asked        string             // the last question
	takes        estimate.Estimate  // how much there is to do
	managed      bool               // a provider runs the server
	superuser    bool               // the role is one
	contained    bool               // it runs in a container
	warned       bool               // of pgvector
	super        string             // the superuser who made the server
	trusted      string             // owners, as it was asked
	slot         string             // of this database alone; "": that of the configuration
	example      string             // of a question, from the first rows; "": none
	suggested    bool               // the table was, which has been told
	left         []string           // columns of text that are not embedded
}

// Run does all of it. An interruption is its error until the rows can be searched; from then on it is the end.
func Run(ctx context.Context, o Options) (err error) {
	if o.Every > 0 { // a line of doing may stand there
		say, steps := o.Say, o.Steps
		o.Say = func(format string, args ...any) { o.Waiting(""); say(format, args...) }
		o.Steps = func(list []step.Step, verb string) { o.Waiting(""); steps(list, verb) }
	}
	q := &quickstart{Options: o, idle: func() {}}
	if q.file, err = create(o.Save, o.DryRun); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.file.end()) }()
	defer func() { q.idle() }()
	q.doing("connecting to the server")
	const smallBatch = 32 // so that the first rows are found after a moment, and the progress is smooth
	if o.Config.Origin("workers.batch_rows") == "default" {
		o.Config.Workers.BatchRows = smallBatch
	}
	end, err := q.connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			q.stands(ctx)
		}
		return err
	}
	defer end()
	q.ownSlot(ctx)
	defer func() {
		if err != nil && ctx.Err() != nil {
			q.stands(ctx)
		}
	}()
	o.Node.Config = o.Config
	q.node = app.New(o.Node)
	running := false
	defer func() {
		if !running {
			if q.loaded != nil {
				q.loaded(true)
			}
			err = errors.Join(err, q.node.Plugins().Close())
		}
	}()
	ready, err := q.prepare(ctx)
	if err != nil || !ready {
		return err
	}
	running = true
	return q.live(ctx)
}

// prepare leads up to a database in which the pipeline is set up. It reports whether there is something to go on with.
func (q *quickstart) prepare(ctx context.Context) (ready bool, err error) {
	specs, err := q.mended(ctx)
	if err != nil {
		return false, err
	}
	specs, about, plan, err := q.draft(ctx, specs)
	if err != nil || q.DryRun {
		return false, err
	}
	if len(plan.Steps) > 0 {
		q.idle()
		yes, err := q.Agree(ctx, "Go on?", func() { q.Steps(plan.Steps, "will make") })
		if err != nil {
			return false, err
		}
		if !yes {
			q.Say("nothing was done")
			return false, nil
		}
	}
	q.changed = true
	q.doing("setting up")
	done, err := app.Initialize(ctx, q.Config, q.Log, setup.Options{Pool: q.server, Specs: specs, Descriptions: about})
	if err != nil || len(done.Steps) != len(plan.Steps) { // else they were told a moment ago
		q.Steps(done.Steps, "made")
	}
	for i := 0; i < len(specs) && err == nil; i++ {
		err = q.counted(ctx, &specs[i])
	}
	return err == nil, err
}

// counted has the server find out how many rows a table has that was just loaded, as by a dump: what is told of the
// backfill goes by that.
func (q *quickstart) counted(ctx context.Context, spec *pipeline.Spec) error {
	table := database.Quote(spec.Schema, spec.Table)
	var known bool
	err := q.server.QueryRow(ctx, "SELECT reltuples >= 0 FROM pg_class WHERE oid = $1::regclass", table).Scan(&known)
	if err == nil && !known {
		_, err = q.server.Exec(ctx, "ANALYZE "+table)
	}
	return err
}

// chosen chooses what to embed. Its error lists all that keeps a set-up from being made: no model is needed to know
// that.
func (q *quickstart) chosen(ctx context.Context) (specs []pipeline.Spec, err error) {
	q.doing("reading samples of tables with text")
	failed := q.choose(ctx)
	if failed == nil {
		specs, failed = q.specs(ctx)
	}
	if near, is := errors.AsType[*nearError](failed); is {
		failed = q.nearly(ctx, near)
	}
	if failed == nil {
		q.load(ctx, specs)
	}
	about := described{}
	if p := q.known; p != nil {
		about[p.Name] = embed.Description{Dims: p.Dims, Fingerprint: p.Fingerprint}
	}
	plan, err := q.plan(ctx, specs, about, true)
	if ctx.Err() != nil {
		return nil, cmp.Or(failed, err, context.Cause(ctx))
	}
	if plan.Refused != nil {
		q.also(plan.Refused)
	}
	refused := []problem.Class{problem.Usage, problem.Conflict, problem.Permission}
	switch {
	case problem.Code(err) == code.Pooler, slices.Contains(refused, problem.Of(err)):
		q.also(err)
	case err != nil && failed == nil && len(q.lacks) == 0:
		return nil, err
	}
	if len(q.lacks) == 0 {
		return specs, failed
	}
	q.also(failed)
	return nil, q.inTheWay()
}

// load has the model loaded while a user reads what is not ready, and mends it. What fails here fails again where that
// is told.
func (q *quickstart) load(ctx context.Context, specs []pipeline.Spec) {
	if q.loaded != nil || !q.Wait {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = q.node.Plugins().Describe(ctx, specs)
	}()
	q.loaded = func(stop bool) {
		if stop {
			cancel()
		}
		<-done
	}
}

// draft tells what the pipelines take and what will be made for them.
func (q *quickstart) draft(ctx context.Context, chosen []pipeline.Spec) (specs []pipeline.Spec, about described,
	plan setup.Report, err error,
) {
	specs = chosen
	q.doing("loading the model")
	if q.loaded != nil {
		q.loaded(false)
	}
	if about, err = q.node.Plugins().Describe(ctx, specs); err != nil {
		return specs, about, plan, err
	}
	q.doing("estimating")
	if specs, err = q.estimated(ctx, specs, about); err != nil {
		return specs, about, plan, err
	}
	q.doing("planning the set-up")
	if plan, err = q.plan(ctx, specs, about, false); err != nil {
		return specs, about, plan, err
	}
	for _, warning := range plan.Warnings {
		q.Say("warning: %s", warning)
	}
	if q.SQL {
		q.Steps(plan.Steps, "would make")
	}
	q.outline(&specs[0], plan.Steps)
	return specs, about, plan, nil
}

// specs are the pipelines of the configuration, as the database knows them.
func (q *quickstart) specs(ctx context.Context) ([]pipeline.Spec, error) {
	stored, err := resolve.Load(ctx, q.pool, q.Config.Slot.Name)
	if err != nil && problem.Of(err) != problem.NotSetUp {
		return nil, err
	}
	specs := lookup.Configured(q.Config, stored)
	if len(specs) != 1 {
		return nil, problem.New(problem.Usage, fmt.Errorf("%d pipelines are configured: this begins with one", len(specs)),
			"several are set up and worked by embedsidecar run")
	}
	if at := lookup.Find(stored, specs[0].Name); at >= 0 {
		q.known = &stored[at]
	}
	return specs, nil
}

// doing tells what is done, where that takes long: after a moment, and then from time to time with how long it has
// taken. It ends what was done before.
func (q *quickstart) doing(what string) {
	const moment, often = 2 * time.Second, 5 * time.Second
	q.idle()
	began, done := time.Now(), make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		told := false
		for next := moment; ; next = cmp.Or(q.Every, often) {
			select {
			case <-time.After(next):
				told = true
				q.Waiting(what + ": " + wording.Age(time.Since(began).Seconds()))
			case <-done:
				if told && q.Every > 0 {
					q.Waiting("")
				}
				return
			}
		}
	})
	q.idle = sync.OnceFunc(func() {
		close(done)
		ended.Wait()
	})
}

// stands tells somebody who has interrupted what is there now.
func (q *quickstart) stands(ctx context.Context) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit) // ctx is over: that is why
	defer cancel()
	if !q.changed {
		q.Say("interrupted: nothing was set up")
		return
	}
	q.Say("interrupted: what is set up stays")
	q.after(ctx)
}
