package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/adopt"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// AdoptOptions says which existing vectors a pipeline adopts.
type AdoptOptions struct {
	adopt.Place

	Pipeline string
	Model    string // the model that made them; "": the pipeline's
	Trust    bool   // skip the comparison of a sample
	DryRun   bool
	By       string   // user name for the audit
	Finish   []string // statements to run at the end, in the transaction that resumes the pipeline
}

// Adopted is the result of Adopt; in a dry run, the expected result.
type Adopted struct {
	setup.Report `json:"-"`
	adopt.Taken

	Pipeline string        `json:"pipeline"`
	From     string        `json:"from"`
	Model    string        `json:"model"`
	DryRun   bool          `json:"dry_run"`
	Sample   *adopt.Sample `json:"sample,omitempty"` // null: nothing was compared
	Left     int64         `json:"left"`             // rows that are embedded once the pipeline is resumed
}

// adoption is one call of Adopt.
type adoption struct {
	equipment

	n     *Options
	o     *AdoptOptions
	spec  pipeline.Spec
	about map[string]embed.Description
	p     pipeline.Pipeline // as the catalog has it
	given *rows.Given
	began string // a snapshot: a row that changed since may have an older vector
}

// Adopt sets up a pipeline whose vectors already exist. It checks with a sample that the pipeline's model made them,
// records which text the vector of each row belongs to, and resumes the pipeline, which is paused until then.
func Adopt(ctx context.Context, n Options, o AdoptOptions) (done Adopted, err error) {
	a := &adoption{n: &n, o: &o}
	if a.equipment, err = n.equip(ctx); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.pool.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&a.began); err != nil {
		return done, fmt.Errorf("begin the adoption: %w", err)
	}
	if err := a.choose(ctx); err != nil {
		return done, err
	}
	done = Adopted{Pipeline: a.spec.Name, From: o.From, Model: a.spec.Model, DryRun: o.DryRun}
	if err := a.prove(ctx, &done); err != nil {
		return done, err
	}
	if o.DryRun { // report what the set-up would refuse, such as another database's slot
		_, err = a.setUp(ctx)
		return done, err
	}
	return done, a.take(ctx, &done)
}

// setUp sets up the pipeline, paused. In a dry run it only reports what would be refused.
func (a *adoption) setUp(ctx context.Context) (setup.Report, error) {
	held := a.spec
	held.Enabled, held.Overwrite = false, true // prove has checked the existing vectors
	return Initialize(ctx, a.n.Config, a.n.Log, setup.Options{
		Pool: a.owner, Specs: []pipeline.Spec{held}, Descriptions: a.about, DryRun: a.o.DryRun, Adopting: true,
		Since: a.began,
	})
}

// choose finds the pipeline and asks its embedder for its description.
func (a *adoption) choose(ctx context.Context) error {
	if a.o.DryRun { // a dry run does not upgrade the schema
		if err := older(catalog.CheckVersion(ctx, a.pool)); err != nil {
			return err
		}
	} else if _, err := upgrade(ctx, a.n.Log, setup.Options{Pool: a.owner}); err != nil {
		return err
	}
	stored, err := resolve.Load(ctx, a.pool, a.n.Config.Slot.Name)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return err
	}
	if a.spec, err = chosen(a.n.Config, stored, a.o); err != nil {
		return err
	}
	if a.about, err = a.plugins.Describe(ctx, []pipeline.Spec{a.spec}); err != nil {
		return err
	}
	if at := lookup.Find(stored, a.spec.Name); at >= 0 {
		return a.serves(&stored[at])
	}
	return nil
}

// serves refuses vectors of another model than the one that the pipeline is set up with: init would keep that model.
func (a *adoption) serves(p *pipeline.Pipeline) error {
	if p.Fingerprint == a.about[a.spec.Name].Fingerprint {
		return nil
	}
	return &refusal.ConfigError{
		Pipeline: p.Name, Code: code.Taken,
		Problem: fmt.Sprintf("it is set up with model %s, whose vectors must not be mixed with those of %s",
			resolve.ModelOf(p.Spec), resolve.ModelOf(a.spec)),
		Hint: []string{
			"adopt vectors of its model",
			"or change its model: embedsidecar model change " + p.Name,
		},
	}
}

// chosen returns the configured pipeline to adopt vectors for. A single pipeline described by flags gets the name that
// the caller used.
func chosen(c *config.Config, stored []pipeline.Pipeline, o *AdoptOptions) (pipeline.Spec, error) {
	specs := lookup.Configured(c, stored)
	all, names := make([]pipeline.Pipeline, len(specs)), make([]string, len(specs))
	for i := range specs {
		all[i].Spec, names[i] = specs[i], specs[i].Name
	}
	at := lookup.Meant(all, o.Pipeline)
	if at < 0 && len(specs) == 1 && c.Origin("pipelines[0].name") == "default" {
		at, specs[0].Name = 0, o.Pipeline
	}
	if at < 0 {
		e := refusal.UnknownPipeline(o.Pipeline, names)
		e.Problem = fmt.Sprintf("no pipeline %q is configured", o.Pipeline)
		e.Hint = append([]string{
			"describe it in a file: --config FILE; or here: --table TABLE --columns COLUMN,... --into COLUMN",
		}, e.Hint[:min(len(e.Hint), len(names))]...)
		return pipeline.Spec{}, e
	}
	spec := specs[at]
	if o.Model != "" && spec.Model != o.Model {
		return spec, &refusal.ConfigError{
			Pipeline: spec.Name, Code: code.Taken,
			Problem: fmt.Sprintf("it is configured with model %s, but the vectors are of %s", spec.Model,
				o.Model),
			Hint: []string{"configure the model that made the vectors (model: " + o.Model + "), and change it afterwards"},
		}
	}
	// specs has whether a stored pipeline is paused, and none with a pattern of schemas.
	spec.Enabled = slices.DeleteFunc(slices.Clone(c.Pipelines), lookup.Pattern)[at].Enabled
	return spec, nil
}

// prove inspects the vectors and compares a sample of them.
func (a *adoption) prove(ctx context.Context, done *Adopted) error {
	var drawn []rows.Sampled
	about := a.about[a.spec.Name]
	err := database.RetryReadOnly(ctx, a.pool, func(tx pgx.Tx) error {
		f, err := resolve.Inspect(ctx, tx, a.spec, catalog.Vectors{Dims: about.Dims, Sparse: about.Sparse}, nil)
		if err != nil {
			return err
		}
		a.p = f.Pipeline
		if a.given, err = adopt.Find(ctx, tx, f, a.o.Place); err != nil {
			return err
		}
		if a.o.DryRun {
			done.Rows, done.Adopted, done.Stale, err = a.given.Count(ctx, tx, &a.p)
			done.Adopted -= done.Stale
			done.Left = done.Rows - done.Adopted
			if err != nil {
				return err
			}
		}
		if a.o.Trust {
			return nil
		}
		rowsOf, err := expected(ctx, tx, &a.p)
		if err != nil {
			return err
		}
		drawn, err = adopt.Draw(ctx, tx, &a.p, a.given, rowsOf)
		return err
	})
	if err != nil || a.o.Trust {
		return err
	}
	by, err := a.plugins.Get(a.spec.Plugin, a.spec.Model)
	if err != nil {
		return err
	}
	sample, err := adopt.Compare(ctx, embed.NewService(by, 0), &a.p, drawn)
	if err != nil {
		return fmt.Errorf("embed a sample of pipeline %q: %w", a.spec.Name, err)
	}
	done.Sample = &sample
	return sample.Judge(&a.p, a.given)
}

// expected returns the server's estimate of the rows in a table.
func expected(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (n int64, err error) {
	err = tx.QueryRow(ctx, "SELECT greatest(sum(c.reltuples), 0)::bigint FROM pg_class AS c WHERE c.relkind = 'r' AND c.oid IN"+
		" (SELECT relid FROM pg_partition_tree($1::oid) UNION SELECT $1::oid)", p.OID).Scan(&n)
	return n, wrap.Errorf(err, "look up the size of %s", p.Source())
}

// take sets up the pipeline, paused, adopts the vectors and resumes it.
func (a *adoption) take(ctx context.Context, done *Adopted) (err error) {
	if done.Report, err = a.setUp(ctx); err != nil {
		return err
	}
	done.Others = nil // other pipelines are not reported here
	at := slices.IndexFunc(done.Pipelines, func(p pipeline.Pipeline) bool { return p.Name == a.spec.Name })
	if at < 0 {
		return fmt.Errorf("pipeline %q was set up but does not exist", a.spec.Name)
	}
	taker := adopt.Taker{DB: a.pool, Pipeline: &done.Pipelines[at], Given: a.given, Log: a.n.Log}
	done.Taken, err = taker.Take(ctx)
	done.Left = done.Taken.Left()
	if err != nil {
		return err
	}
	return database.Transact(ctx, a.owner, func(tx pgx.Tx) error { return a.finish(ctx, tx) })
}

// finish runs the final statements and resumes the pipeline.
func (a *adoption) finish(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range a.o.Finish {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return unfinished(err, tx.Conn().Config().User, &a.spec, sql, a.o.Finish)
		}
	}
	if err := failpoint.Hit("adopt/before-resume"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE embedsidecar.pipeline SET adopting = false WHERE name = $1", a.spec.Name)
	if err != nil || !a.spec.Enabled {
		return wrap.Errorf(err, "end the adoption")
	}
	return verbs.ResumeWithin(ctx, tx, a.spec.Name, a.o.By)
}
