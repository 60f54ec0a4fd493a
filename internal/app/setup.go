package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// SetUpOptions are the options of a set-up without a running sidecar.
type SetUpOptions struct {
	Adopt    bool // the database is a copy of another
	DryRun   bool
	Applies  bool   // the audit action is apply, not init
	Asked    string // the requested pipeline, already among the declared ones of the configuration; "": none
	Estimate bool   // estimate the backfill of pipelines that are new or embed other texts than before
}

// SetUpDone is the result of a set-up; in a dry run, the expected result.
type SetUpDone struct {
	setup.Report

	Begun       bool // at least a plan was made
	Estimates   []estimate.Estimate
	Unestimated []error // why other estimates are missing
}

// SetUp sets up what the configured pipelines need. The result is also valid beside an error.
func SetUp(ctx context.Context, n Options, o SetUpOptions) (done SetUpDone, err error) {
	by, err := n.equip(ctx)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, by.close()) }()
	var upgraded setup.Report
	if !o.DryRun {
		upgraded, err = upgrade(ctx, n.Log, setup.Options{Pool: by.owner})
		if done.Report, done.Begun = upgraded, len(upgraded.Steps) > 0; err != nil {
			return done, err
		}
	}
	already, err := o.known(ctx, by.pool, n.Config.Slot.Name)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return done, err
	}
	o.Estimate = o.Estimate && older(err) == nil // an older schema does not show what is new
	if err == nil && !o.Adopt && o.Asked == "" {
		if n.Config, err = withDeclared(ctx, n, by.pool); err != nil {
			return done, err
		}
	}
	if !o.DryRun && err == nil {
		if exchanged, err := exchangeNames(ctx, n.Config, by.owner, already); err != nil {
			return done, err
		} else if len(exchanged) > 0 {
			if already, err = o.known(ctx, by.pool, n.Config.Slot.Name); err != nil {
				return done, err
			}
		}
	}
	specs := lookup.Configured(n.Config, already)
	specs, described, dumb, err := o.describe(ctx, n, by, specs)
	if err != nil {
		return done, err
	}
	done.Begun = true
	specs, sick, err := o.initialize(ctx, n, specs, setup.Options{
		Pool: by.owner, Descriptions: described, Adopt: o.Adopt, DryRun: o.DryRun,
	}, &done.Report)
	if words := leftWords(by.left); words != "" {
		done.Warnings = append(done.Warnings, words)
	}
	done.Warnings = append(append(done.Warnings, dumb...), sick...)
	done.Others = slices.DeleteFunc(done.Others, n.Config.IsDeclared) // these were left out
	done.Steps = append(upgraded.Steps, done.Steps...)
	changes := map[string]bool{}
	for _, c := range done.Changes {
		changes[c.Pipeline] = true
		changed, failed := changeModel(ctx, n, by, ModelChange{
			Pipeline: c.Pipeline, To: c.To, Recipe: c.Recipe, DryRun: o.DryRun, Estimate: o.Estimate,
		})
		done.Steps, err = append(done.Steps, changed.Steps...), errors.Join(err, failed)
		if done.Warnings = append(done.Warnings, changed.Warnings...); changed.Estimate != nil {
			done.Estimates = append(done.Estimates, *changed.Estimate)
		}
	}
	if !o.DryRun {
		o.record(ctx, n, by.owner, specs, &done, err)
	}
	if err != nil || !o.Estimate {
		return done, err
	}
	for _, spec := range specs {
		if at := lookup.Find(already, spec.Name); changes[spec.Name] || at >= 0 && SameTexts(spec, already[at].Spec) {
			continue
		}
		e, err := Estimated(ctx, n.Config, by.pool, by.plugins, spec, described[spec.Name])
		if err != nil {
			done.Unestimated = append(done.Unestimated, err)
			continue
		}
		done.Estimates = append(done.Estimates, e)
	}
	return done, nil
}

// describe asks the embedders of pipelines for their descriptions. Declared pipelines whose embedder is unavailable are
// left out; left are the warnings about them.
func (o *SetUpOptions) describe(ctx context.Context, n Options, by equipment, specs []pipeline.Spec,
) (able []pipeline.Spec, described map[string]embed.Description, left []string, err error) {
	described, failed := by.plugins.DescribeEach(ctx, specs)
	var problems []error
	told := map[pipeline.ModelName]bool{}
	for _, spec := range specs {
		why := failed[spec.Name]
		switch {
		case why == nil:
			able = append(able, spec)
		case o.stopsNobody(n.Config, spec.Name):
			left = append(left, n.Redact(database.Words(why)))
		case !told[spec.ModelName()]: // report each model once
			problems = append(problems, why)
			told[spec.ModelName()] = true
		}
	}
	return able, described, left, errors.Join(problems...)
}

// stopsNobody reports whether a pipeline is declared and is not the requested one. Its failure does not stop the
// others.
func (o *SetUpOptions) stopsNobody(c *config.Config, name string) bool {
	return name != o.Asked && c.IsDeclared(name)
}

// initialize sets up pipelines. It leaves out declared ones that fail, and failing ones in schemas if others of the
// same file entry are left. sick are the warnings about them.
func (o *SetUpOptions) initialize(ctx context.Context, n Options, specs []pipeline.Spec, so setup.Options,
	done *setup.Report,
) (able []pipeline.Spec, sick []string, err error) {
	for so.Specs = specs; ; {
		*done, err = Initialize(ctx, n.Config, n.Log, so)
		rest, left := o.withoutSick(n.Config, so.Specs, err)
		if len(left) == 0 {
			return so.Specs, sick, err
		}
		so.Specs = rest
		for _, why := range left {
			sick = append(sick, n.Redact(database.Words(why)))
		}
	}
}

// withoutSick leaves out the failing pipelines that are declared or in schemas. It leaves out none if the error is also
// about others or about the requested pipeline, or if a file entry would have no pipeline left.
func (o *SetUpOptions) withoutSick(c *config.Config, specs []pipeline.Spec, err error) (rest []pipeline.Spec,
	left []error,
) {
	culprits, well := refusal.Culprits(err), map[int]bool{}
	for _, spec := range specs {
		if culprits[spec.Name] == nil {
			rest = append(rest, spec)
			well[c.InSchema(spec.Name)] = true
		}
	}
	for _, spec := range specs {
		if why := culprits[spec.Name]; why != nil {
			if at := c.InSchema(spec.Name); !o.stopsNobody(c, spec.Name) && (at < 0 || !well[at]) {
				return specs, nil
			}
			left = append(left, why)
		}
	}
	return rest, left
}

// record writes the set-up into the audit and records the file of the pipelines. A failure is only logged.
func (o *SetUpOptions) record(ctx context.Context, n Options, pool *pgxpool.Pool, specs []pipeline.Spec,
	done *SetUpDone, failed error,
) {
	told := control.Configured{File: fileOf(n.Config)}
	told.Steps = whatsOf(done.Steps)
	if failed != nil {
		told.Reason = n.Redact(database.Words(failed))
	}
	if len(told.Steps) == 0 && failed == nil {
		return
	}
	action := "init"
	if o.Applies {
		action = "apply"
	}
	err := note(ctx, pool, action, "", verbs.Person(), told.Filled(), failed)
	if _, missing := errors.AsType[*refusal.NotSetUpError](refusal.NotSetUp(err)); err != nil && !missing {
		n.Log.WarnContext(ctx, "could not write the set-up into the audit", "error", err)
	}
	if told.File == "" || failed != nil {
		return
	}
	names := lists.Map(specs, func(v pipeline.Spec) string { return v.Name })
	if err := noteOrigin(ctx, pool, n.Config, names); err != nil {
		n.Log.WarnContext(ctx, "could not store the configuration file of the pipelines", "error", err)
	}
}

// SameTexts reports whether two definitions of a pipeline embed the same texts.
func SameTexts(configured, set pipeline.Spec) bool {
	return configured.Text == set.Text && configured.Filter == set.Filter && configured.Chunking == set.Chunking &&
		slices.Equal(configured.Columns, set.Columns)
}

// known returns the pipelines that are already set up.
func (o *SetUpOptions) known(ctx context.Context, pool *pgxpool.Pool, slot string) ([]pipeline.Pipeline, error) {
	if o.Adopt { // pipelines may come from the slot of the original
		return lookup.All(ctx, pool)
	}
	return resolve.Load(ctx, pool, slot)
}

// Initialize calls setup.Init with the configuration. It waits while another set-up runs. A sidecar that starts waits
// without a limit, because the other may wait for open transactions.
func Initialize(ctx context.Context, c *config.Config, log *slog.Logger, o setup.Options) (setup.Report, error) {
	o.ReplicationDSN = c.Database.Stream()
	o.Slot, o.Publication = c.Slot.Name, c.Publication.Name
	o.Judge = judge(c)
	o.InSchema = func(name string) bool { return c.InSchema(name) >= 0 }
	o.Failover, o.StopOnLost = !c.Slot.NoFailover, c.Slot.StopOnLost
	return alone(ctx, log, o, setup.Init)
}

// upgrade calls setup.Upgrade, in the same way, if the schema is of an older version. What is set up can only be read
// afterwards.
func upgrade(ctx context.Context, log *slog.Logger, o setup.Options) (setup.Report, error) {
	if err := older(catalog.CheckVersion(ctx, o.Pool)); err == nil {
		return setup.Report{}, nil // other schema errors are reported where the schema is read
	}
	return alone(ctx, log, o, setup.Upgrade)
}

// older returns the error of a schema of an older version, or nil.
func older(err error) error {
	if e, ok := errors.AsType[*refusal.NotSetUpError](err); ok && e.Of != "" {
		return e
	}
	return nil
}

// alone calls a set-up function, and retries while another set-up runs.
func alone(ctx context.Context, log *slog.Logger, o setup.Options,
	call func(context.Context, setup.Options) (setup.Report, error),
) (setup.Report, error) {
	o.Log = log
	const first, longest, again = 100 * time.Millisecond, time.Second, time.Minute
	limit := time.Minute
	if o.Starting {
		limit = 0 // none
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = first, longest
	next := time.Now().Add(first)
	done, err := backoff.Retry(ctx, func() (setup.Report, error) {
		done, err := call(ctx, o)
		if err != nil && !errors.Is(err, setup.ErrInitRunning) {
			err = backoff.Permanent(err)
		}
		return done, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(limit), backoff.WithNotify(func(err error, _ time.Duration) {
		if now := time.Now(); now.After(next) {
			log.WarnContext(ctx, "waiting for another set-up", "reason", err)
			next = now.Add(again)
		}
	}))
	return done, pointToCheck(err)
}

// pointToCheck adds a hint to a server refusal: there may be more problems, and embedsidecar check reports them all.
func pointToCheck(err error) error {
	_, permission := errors.AsType[*refusal.PermissionError](err)
	wrong, configuration := errors.AsType[*refusal.ConfigError](err)
	connect, connection := errors.AsType[*database.Error](err)
	if permission || configuration && wrong.Pipeline == "" || connection && connect.Kind == database.Permission {
		return problem.New(problem.Of(err), err, append(problem.Hints(err), "embedsidecar check lists everything that is missing")...)
	}
	return err
}
