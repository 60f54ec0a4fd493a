// Package quickstart leads from a database URL to a search in its rows. It inspects the database, suggests what to
// embed, shows a plan, asks once, sets up, runs the sidecar and answers questions. The packages behind the other
// commands do that work. This one has the order and the messages for the user.
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

// Options are the settings and callbacks of a quickstart.
type Options struct {
	*Person

	Config *config.Config // with the wanted pipeline, or none
	Table  string         // table to suggest columns of; "": the one with the most text
	Log    *slog.Logger
	Redact func(string) string // removes secrets from a text
	DryRun bool                // report everything, and do nothing
	Wait   bool                // a user is there and can fix what is not ready
	SQL    bool                // show the statements as well
	// Program is the name that the program was called by.
	Program string
	Save    string      // file for the configuration; "": it is only shown
	Node    app.Options // of the sidecar

	Say     func(format string, args ...any)
	Steps   func(list []step.Step, verb string) // shows what is made, or would be
	Waiting func(what string)                   // shows what is waited for
	Every   time.Duration                       // interval of Waiting, which gets "" at the end; 0: long
	// Chunks says whether to split texts that are longer than the model reads: "yes", "no", or "" to ask.
	Chunks string
	Show   func(p *pipeline.Pipeline, hits []search.Hit) error
}

// described has the description of each pipeline's embedder.
type described = map[string]embed.Description

// quickstart is the state of one call of Run.
type quickstart struct {
	Options

	pool, server *pgxpool.Pool // for queries; and for the set-up, directly to the server
	node         *app.Node
	file         *file
	lacks        []lack
	known        *pipeline.Pipeline // as it is set up; nil: it is not
	idle         func()             // stops the messages of doing
	loaded       func(stop bool)    // waits until the model is loaded, or cancels that; nil: it is not being loaded
	release      int                // major version of the server: 18
	database     string             // its name
	changed      bool               // the database may have been changed
	asked        string             // the last question
	takes        estimate.Estimate  // the estimated work
	managed      bool               // a provider runs the server
	superuser    bool               // the role is a superuser
	contained    bool               // the server runs in a container
	warned       bool               // about pgvector
	super        string             // the superuser who made the server
	trusted      string             // owners that the user agreed to trust
	slot         string             // own slot of this database; "": the configured one
	example      string             // example question from the first rows; "": none
	suggested    bool               // the table was suggested, and shown
	left         []string           // text columns that are not embedded
}

// Run runs the whole quickstart. An interrupt is an error until all rows are embedded; then it is a normal end.
func Run(ctx context.Context, o Options) (err error) {
	if o.Every > 0 { // clear the line of doing first
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
	const smallBatch = 32 // finds the first rows soon, and makes the progress smooth
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

// prepare sets up the pipeline. It reports whether there is something to go on with.
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
	if err != nil || len(done.Steps) != len(plan.Steps) { // otherwise the user has just seen them
		q.Steps(done.Steps, "made")
	}
	for i := 0; i < len(specs) && err == nil; i++ {
		err = q.counted(ctx, &specs[i])
	}
	return err == nil, err
}

// counted makes the server count the rows of a table that was just loaded, as from a dump. The progress of the backfill
// uses that number.
func (q *quickstart) counted(ctx context.Context, spec *pipeline.Spec) error {
	table := database.Quote(spec.Schema, spec.Table)
	var known bool
	err := q.server.QueryRow(ctx, "SELECT reltuples >= 0 FROM pg_class WHERE oid = $1::regclass", table).Scan(&known)
	if err == nil && !known {
		_, err = q.server.Exec(ctx, "ANALYZE "+table)
	}
	return err
}

// chosen chooses what to embed. Its error lists everything that prevents the set-up. It needs no model for that.
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

// load loads the model while the user fixes what is not ready. A failure is ignored: draft fails again and reports it.
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

// draft shows what the pipelines take and what will be made for them.
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

// specs returns the configured pipelines, as the database knows them.
func (q *quickstart) specs(ctx context.Context) ([]pipeline.Spec, error) {
	stored, err := resolve.Load(ctx, q.pool, q.Config.Slot.Name)
	if err != nil && problem.Of(err) != problem.NotSetUp {
		return nil, err
	}
	specs := lookup.Configured(q.Config, stored)
	if len(specs) != 1 {
		return nil, problem.New(problem.Usage, fmt.Errorf("%d pipelines are configured, but quickstart takes one", len(specs)),
			"embedsidecar run sets up and runs several")
	}
	if at := lookup.Find(stored, specs[0].Name); at >= 0 {
		q.known = &stored[at]
	}
	return specs, nil
}

// doing shows what is being done if it takes long: after a moment, and then at intervals with the elapsed time. It ends
// the message before.
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

// stands reports, after an interrupt, what is set up.
func (q *quickstart) stands(ctx context.Context) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit) // ctx has ended
	defer cancel()
	if !q.changed {
		q.Say("interrupted: nothing was set up")
		return
	}
	q.Say("interrupted: what was set up stays")
	q.after(ctx)
}
