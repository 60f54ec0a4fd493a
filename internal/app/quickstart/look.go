package quickstart

import (
	"context"
	"errors"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
)

// connect opens the pool that looks, and the one that sets up.
func (q *quickstart) connect(ctx context.Context) (end func(), err error) {
	open := connection.Opener{Config: q.Config, Log: q.Log}
	if q.pool, err = open.Pool(ctx, connection.Few); err != nil {
		return nil, err
	}
	if q.server, err = open.Server(ctx, q.pool, connection.Few); err != nil {
		q.pool.Close()
		return nil, err
	}
	return func() {
		q.server.Close()
		q.pool.Close()
	}, nil
}

// look tells what the database has, and refuses one in which nothing could be set up.
func (q *quickstart) look(ctx context.Context) error {
	s, err := check.ReadServer(ctx, q.pool, q.Config.Slot.Name)
	if err != nil {
		return fmt.Errorf("look at the server: %w", database.Wrap(err))
	}
	const release = 10000
	major := s.Version / release
	vector := s.Vector
	q.vector = s.Vector != ""
	if vector == "" {
		vector = "not in this database yet, the server has " + s.VectorAvailable
	}
	if s.Vector == "" && s.VectorAvailable == "" {
		vector = "missing"
	}
	q.Say("PostgreSQL %d, wal_level %s, pgvector %s, %d of %d replication slots free, role %q", major, s.WALLevel, vector,
		max(0, s.MaxSlots-s.Slots), s.MaxSlots, s.Role)
	// What a set-up refuses it knows best: it is tried without a pipeline.
	if _, err := q.plan(ctx, nil, nil); err != nil {
		return err
	}
	switch {
	case vector == "missing":
		return refusal.Coded(code.Pgvector, "the server does not have pgvector",
			fmt.Sprintf("install the server's package pgvector, such as postgresql-%d-pgvector", major))
	case !s.Exists && s.Slots >= s.MaxSlots:
		return &refusal.ConflictError{
			Code: code.NoSlotFree, Problem: fmt.Sprintf("all %d replication slots of the server are in use", s.MaxSlots),
			Hint: []string{
				"drop an unused one: SELECT slot_name, active FROM pg_replication_slots;",
				"or raise max_replication_slots and restart the server",
			},
		}
	}
	return nil
}

// plan says what a set-up of some pipelines would do.
func (q *quickstart) plan(ctx context.Context, specs []pipeline.Spec, about described) (setup.Report, error) {
	return app.Initialize(ctx, q.Config, q.Log, setup.Options{
		Pool: q.server, Specs: specs, Descriptions: about, DryRun: true,
	})
}

// choose makes the configuration hold the pipeline that is to be set up: the one that is configured, one that is set up
// and meant, or else a suggestion.
func (q *quickstart) choose(ctx context.Context) error {
	stored, err := lookup.Stored(ctx, q.pool, q.Config.Slot.Name)
	missing, is := errors.AsType[*refusal.NotSetUpError](err)
	if err != nil && (!is || missing.Of != "") { // what is set up in a schema of an older version is not known
		return err
	}
	if len(q.Config.Pipelines) > 0 {
		return nil
	}
	if at := lookup.Meant(stored, q.Table); q.Table != "" && at >= 0 {
		q.Say("pipeline %q is set up already: this goes on with it", stored[at].Name)
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
	if q.Table == "" {
		q.Say("the most text is in %s", found[0].line())
	} else {
		q.Say("%s", found[0].line())
	}
	const most = 4
	for i := range found[1:min(len(found), most)] {
		q.Say("  also %s", found[i+1].line())
	}
	if len(found) > 1 {
		q.Say("  another one: embedsidecar quickstart URL TABLE")
	}
	q.Config.UsePipelines(spec)
	return nil
}

// already is the error of a database in which something is set up, and nobody said with what of it to go on.
func (q *quickstart) already(stored []pipeline.Pipeline) error {
	name := stored[0].Name
	return problem.New(problem.Conflict, fmt.Errorf("this database is set up already: pipeline %q", name),
		"go on with it: embedsidecar quickstart URL "+health.Quoted(name),
		"or permanently: embedsidecar run",
		"search in it: embedsidecar search "+health.Quoted(name)+" 'a text'",
		"to start over: embedsidecar uninstall is a dry run, --yes executes it")
}

// estimate says how much there is to do, and refuses where there is nothing.
func (q *quickstart) estimate(ctx context.Context, spec pipeline.Spec, about described) error {
	if !q.vector {
		q.Say("how long it takes is known when pgvector is there")
		return nil
	}
	by, err := q.node.Plugins().Get(spec.Plugin, spec.Model)
	if err != nil {
		return err
	}
	e, err := estimate.Make(ctx, estimate.Options{
		DB: q.pool, Spec: spec, About: about[spec.Name], By: by, Price: q.Config.PriceOf(spec.Model),
	})
	if err != nil {
		return err
	}
	if e.Rows == 0 {
		return nothing([]string{database.Quote(spec.Schema, spec.Table)}, nil, nil)
	}
	q.Say("%s", e.Line())
	return nil
}
