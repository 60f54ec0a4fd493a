package quickstart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// connect opens the pool for queries and the pool for the set-up.
func (q *quickstart) connect(ctx context.Context) (end func(), err error) {
	open := connection.Opener{Config: q.Config, Log: q.Log}
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return nil, q.unsafe(ctx, open, err)
	}
	server, err := open.Server(ctx, pool, connection.Few)
	if err != nil {
		pool.Close()
		return nil, err
	}
	q.pool, q.server = pool, server
	return func() {
		q.server.Close()
		q.pool.Close()
	}, nil
}

// ownSlot chooses a slot for this database if none is configured and the default one belongs to another database.
func (q *quickstart) ownSlot(ctx context.Context) {
	usual := q.Config.Slot.Name
	if q.Config.Origin("slot.name") != "default" {
		return
	}
	s, err := slot.Read(ctx, q.pool, usual)
	if err != nil { // our tables do not exist
		s, err = slot.Find(ctx, q.pool, usual, false)
	}
	if err != nil || !s.Exists || s.Recorded || s.Database == "" || s.Database == s.Here {
		return
	}
	q.slot = database.OwnSlot(s.Here)
	q.Config.Slot.Name = q.slot
	q.Say("The slot %q is that of database %q, so this one gets another. All commands for it need --slot %s.", usual,
		s.Database, q.slot)
}

// unsafe reports what else is missing if the schema embedsidecar is not safe to use. It returns any other failure.
func (q *quickstart) unsafe(ctx context.Context, open connection.Opener, failed error) (err error) {
	if problem.Code(failed) != code.Untrusted {
		return failed
	}
	open.CatalogOnly = true
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return err
	}
	q.pool = pool
	defer pool.Close()
	if err := q.look(ctx, true); err != nil {
		return err
	}
	q.also(failed)
	return q.inTheWay()
}

// look shows what the database has, and collects what it lacks.
func (q *quickstart) look(ctx context.Context, catalogOnly bool) error {
	s, err := catalog.ReadServer(ctx, q.pool, q.Config.Slot.Name)
	if err != nil {
		return fmt.Errorf("look at the server: %w", database.Wrap(err))
	}
	const release = 10000
	q.release, q.database, q.superuser = s.Version/release, s.Database, s.Superuser
	if err = q.administered(ctx); err != nil {
		return err
	}
	var right []string
	for _, f := range check.Ready(ctx, check.Options{
		Pool: q.pool, ReplicationDSN: q.Config.Database.Stream(), Slot: q.Config.Slot.Name,
		Publication: q.Config.Publication.Name, CatalogOnly: catalogOnly,
	}) {
		switch {
		case f.Status == check.Warn && f.Name == check.Extension:
			if !q.warned {
				q.Say("warning: %s %s; %s", f.Name, f.Detail, strings.Join(f.Hint, "; "))
			}
			q.warned = true
		case f.Status == check.Wrong:
			q.lack(f.Name+": "+f.Detail, f.Err, f.Hint...)
		case f.Status == check.OK && !strings.HasPrefix(f.Name, "logical "):
			right = append(right, f.Name+" "+f.Detail)
		}
	}
	if q.DryRun || len(q.lacks) > 0 && !q.Wait {
		q.Say("found: %s", strings.Join(right, "; "))
	}
	return nil
}

// administered finds out who administers the server: a provider, identified by its roles, or the superuser who created
// the server. The server runs in a container if its own address is not the one that it is reached by.
func (q *quickstart) administered(ctx context.Context) error {
	err := q.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles
		WHERE rolname IN ('rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin', 'supabase_admin', 'neon_superuser')),
		pg_get_userbyid(10), NOT coalesce(inet_server_addr() <<= ANY ('{127.0.0.0/8, ::1}'::inet[]), true)`).
		Scan(&q.managed, &q.super, &q.contained)
	return wrap.Errorf(err, "look for a provider's roles")
}

// plan plans the set-up of pipelines. A sketch needs no loaded model.
func (q *quickstart) plan(ctx context.Context, specs []pipeline.Spec, about described, sketch bool,
) (setup.Report, error) {
	return app.Initialize(ctx, q.Config, q.Log, setup.Options{
		Pool: q.server, Specs: specs, Descriptions: about, DryRun: true, Sketch: sketch,
	})
}

// nearly adds what a table lacks to be embedded, and what its role lacks.
func (q *quickstart) nearly(ctx context.Context, near *nearError) error {
	t, role := &near.table, database.Quote(near.table.Reader)
	if near.unreadable {
		q.lack(fmt.Sprintf("%s: role %s may not read it", t.Whose(), role), near.error,
			"GRANT USAGE ON SCHEMA "+database.Quote(t.Schema)+" TO "+role+";", "GRANT SELECT ON "+t.Quoted()+" TO "+role+";")
		if len(t.Key) == 0 {
			q.lack(t.Quoted()+" has no primary key", nil, t.AddKey())
		}
	} else {
		q.also(near.error)
	}
	var may bool
	err := q.pool.QueryRow(ctx, "SELECT has_schema_privilege($1, 'CREATE')", t.Schema).Scan(&may)
	if err != nil {
		return fmt.Errorf("look up schema %s: %w", database.Quote(t.Schema), err)
	}
	if !may {
		q.lack(fmt.Sprintf("embedding table: role %s may not create in schema %s", role, database.Quote(t.Schema)), nil,
			"GRANT CREATE ON SCHEMA "+database.Quote(t.Schema)+" TO "+role+";")
	}
	if t.OwnedByUs {
		return nil
	}
	steps, err := publish.Plan(q.Config.Publication.Name, nil, []publish.Wanted{{Table: t}}, true, "")
	if err == nil {
		q.lack(steps[0].What+": "+steps[0].Why, nil, steps[0].SQL[0]+";")
	}
	return err
}

// source returns the table with the embedded columns, or the expression.
func (q *quickstart) source() string {
	spec := q.Config.Pipelines[0]
	return database.Quote(spec.Schema, spec.Table) + ": " + cmp.Or(strings.Join(spec.Columns, ", "), spec.Text)
}

// outline shows in a few lines what is made and how long it takes.
func (q *quickstart) outline(spec *pipeline.Spec, steps []step.Step) {
	e := &q.takes
	q.Say("")
	if e.Seconds != nil && *e.Seconds > 30 { // seconds
		q.Say("  Search works from the first rows on.")
	}
	if !q.suggested {
		not := ""
		if len(q.left) > 0 {
			not = " (not " + strings.Join(q.left, ", ") + ")"
		}
		q.Say("  embed     %s%s", q.source(), not)
	}
	q.Say("  model     %s", cmp.Or(spec.Model, spec.Plugin))
	q.Say("  takes     %s", e.Brief())
	if len(steps) == 0 {
		q.Say("  makes     nothing: it is already set up")
		return
	}
	if !q.Wait { // the question offers to show them
		var made []string
		for i := range steps {
			if !strings.HasPrefix(steps[i].What, "pipeline ") { // the user asked for it
				made = append(made, steps[i].What)
			}
		}
		q.Say("  makes     %s", strings.Join(made, "; "))
	}
	if !spec.InSource() {
		q.Say("            Your table does not change.")
	}
	q.Say("  undo      one command, shown at the end")
	if q.known == nil {
		if words := faster(spec.Plugin, models.List(q.Node.Find.Models(q.Config.ModelDir))); words != "" {
			q.Say("  %s", words)
		}
	}
}

// choose puts the pipeline to set up into the configuration: the configured one, one that is set up, or a suggestion.
func (q *quickstart) choose(ctx context.Context) error {
	stored, err := resolve.Load(ctx, q.pool, q.Config.Slot.Name)
	missing, is := errors.AsType[*refusal.NotSetUpError](err)
	if err != nil && (!is || missing.Of != "") { // a schema of an older version cannot be read
		return err
	}
	if len(q.Config.Pipelines) > 0 {
		return nil
	}
	at := -1
	switch {
	case q.Table != "":
		at = lookup.Meant(stored, q.Table)
	case len(stored) == 1:
		at = 0
	}
	if at >= 0 {
		q.Say("pipeline %q is already set up: using it", stored[at].Name)
		q.Config.UsePipelines(stored[at].Spec)
		return nil
	}
	if q.Table == "" && len(stored) > 0 {
		return q.already(stored)
	}
	found, unsafe, err := suggest(ctx, q.pool, q.Table)
	if err != nil {
		return err
	}
	for _, err := range unsafe {
		q.Say("left out: %s", err)
	}
	spec, err := specOf(&found[0])
	if err != nil {
		return err
	}
	q.left, q.suggested = found[0].Left, len(found) > 1 || !q.Wait
	switch {
	case q.suggested && q.Table == "":
		q.Say("the most text is in %s", found[0].line())
	case q.suggested: // otherwise the plan shows it
		q.Say("%s", found[0].line())
	}
	if len(found) > 1 {
		others := lists.Map(found[1:min(len(found), 4)], func(t table) string {
			return fmt.Sprintf("%s (%s)", database.Quote(t.Schema, t.Name), wording.Count(t.Rows, "row"))
		})
		q.Say("  or %s: %s quickstart URL TABLE", strings.Join(others, ", "), q.Program)
	}
	q.Config.UsePipelines(spec)
	return nil
}

// already is the error if the database is set up and the user named no pipeline to go on with.
func (q *quickstart) already(stored []pipeline.Pipeline) error {
	name := stored[0].Name
	return problem.New(problem.Conflict, fmt.Errorf("this database is set up already: pipeline %q", name),
		"continue with it: embedsidecar quickstart URL "+health.Argument(name),
		"or permanently: embedsidecar run",
		"search in it: embedsidecar search "+health.Argument(name)+" 'a text'",
		"to start over: embedsidecar uninstall is a dry run, --yes executes it")
}

// estimated estimates the work, and refuses an empty table. It returns the pipelines, with chunks if wanted.
func (q *quickstart) estimated(ctx context.Context, specs []pipeline.Spec, about described) ([]pipeline.Spec, error) {
	e, err := q.estimate(ctx, specs[0], about)
	if err != nil {
		return nil, err
	}
	if e.Rows == 0 {
		return nil, nothing([]string{database.Quote(specs[0].Schema, specs[0].Table)}, nil)
	}
	chunks, err := q.wantsChunks(ctx, &specs[0], &e)
	if err != nil {
		return nil, err
	}
	if chunks {
		spec := q.Config.Pipelines[0]
		spec.Chunking = pipeline.Chunking{
			Strategy: pipeline.ChunkSentences,
			Tokens:   max(pipeline.MinChunkTokens, min(pipeline.DefaultChunkTokens, e.MaxTokens)),
		}
		q.Config.UsePipelines(spec)
		if specs, err = q.specs(ctx); err != nil {
			return nil, err
		}
		if e, err = q.estimate(ctx, specs[0], about); err != nil {
			return nil, err
		}
	}
	q.takes = e
	return specs, nil
}

// estimate estimates the work; for a pipeline that is set up, the rest of it.
func (q *quickstart) estimate(ctx context.Context, spec pipeline.Spec, about described) (estimate.Estimate, error) {
	if p := q.known; p != nil && p.Status == pipeline.Active && app.SameTexts(spec, p.Spec) {
		return q.Node.Rest(ctx, q.pool, q.node.Plugins(), p, false)
	}
	return app.Estimated(ctx, q.Config, q.pool, q.node.Plugins(), spec, about[spec.Name])
}

// wantsChunks asks whether to split texts that are longer than the model reads into chunks, each with its own vector. A
// pipeline that is set up does not change, and a vector column in the source table has no place for chunks.
func (q *quickstart) wantsChunks(ctx context.Context, spec *pipeline.Spec, e *estimate.Estimate) (bool, error) {
	if e.Cut == 0 || spec.InSource() || q.known != nil {
		return false, nil
	}
	q.Say("%s are longer than the model reads (%d tokens).", e.CutOf(), e.MaxTokens)
	wanted := q.Chunks != "no"
	if q.Chunks == "" && !q.DryRun {
		q.idle()
		var err error
		if wanted, err = q.Ask(ctx, "Use chunks, so that searches cover whole texts?"); err != nil {
			return false, err
		}
	}
	if wanted && !q.Wait { // the user was not asked
		q.Say("using chunks, so that searches cover whole texts (--chunks no cuts the texts instead)")
	}
	return wanted, nil
}
