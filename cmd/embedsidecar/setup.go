package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/step"
	"github.com/embedsidecar/embedsidecar/replication"
)

// initialize calls setup.Init with what is configured. Of two that begin at the same moment one waits for the other.
func initialize(ctx context.Context, env *environment, o setup.Options) (setup.Report, error) {
	o.ReplicationDSN = env.config.Database.Stream()
	o.Slot, o.Publication = env.config.Slot.Name, env.config.Publication.Name
	o.Failover = !env.config.Slot.NoFailover
	o.Log = env.log
	const first, longest, limit = 100 * time.Millisecond, time.Second, time.Minute
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = first, longest
	done, err := backoff.Retry(ctx, func() (setup.Report, error) {
		done, err := setup.Init(ctx, o)
		if err != nil && !errors.Is(err, setup.ErrInitRunning) {
			err = backoff.Permanent(err)
		}
		return done, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(limit))
	for _, warning := range done.Warnings {
		if !slices.Contains(env.warned, warning) { // it is tried again where only one pipeline cannot work
			env.say("warning: %s", warning)
			env.warned = append(env.warned, warning)
		}
	}
	return done, pointToCheck(ctx, err)
}

// pointToCheck adds to a refusal by the server, of which there may be more behind the first, who tells them all.
func pointToCheck(ctx context.Context, err error) error {
	_, permission := errors.AsType[*refusal.PermissionError](err)
	wrong, config := errors.AsType[*refusal.ConfigError](err)
	connect, connection := errors.AsType[*database.Error](err)
	if permission || config && wrong.Pipeline == "" || connection && connect.Kind == database.Permission {
		return fail(exitCode(ctx, err), err, append(problem.Hints(err),
			"embedsidecar check tells all at once that is missing")...)
	}
	return err
}

// tellOthers names the pipelines that the configuration does not have: to take one out of a file takes nothing away.
func (e *environment) tellOthers(names []string) {
	for _, name := range names {
		e.say("pipeline %q is set up and not configured: it goes on as it is; embedsidecar uninstall %s takes it away", name,
			quoted(name))
	}
}

// tellKept warns of a pipeline that works as it is set up though it is configured otherwise, as --no-init has it.
func (e *environment) tellKept(spec, set pipeline.Spec) {
	if set.Model == "" { // it has the model that is named here
		spec.Model = ""
	}
	if was := resolve.Differences(spec, set); len(was) > 0 {
		e.say("warning: pipeline %q is set up otherwise than it is configured here, and works as it is set up (--no-init): %s; "+
			"embedsidecar init changes it, or says what stands in the way", spec.Name, strings.Join(was, ", "))
	}
}

// tellModel warns of --model where no pipeline is configured that could take it: those that are set up have their own.
func (e *environment) tellModel(set []pipeline.Pipeline) {
	model := e.config.DefaultModel
	if e.config.Origin("default_model") == "default" || e.config.Queries.Listen != "" || // queries have it embed texts
		slices.ContainsFunc(set, func(p pipeline.Pipeline) bool { return p.Model == model || p.Model == "" }) {
		return
	}
	var own []string
	for i := range set {
		own = append(own, fmt.Sprintf("%s has %q", set[i].Name, set[i].Model))
	}
	e.say("warning: no pipeline is configured here that could take the model %q, and those that are set up keep theirs: %s; "+
		"name the pipeline, too, and leave out --no-init: its set-up changes, or says what stands in the way",
		model, strings.Join(own, ", "))
}

// tellSteps tells a person what was made and how to undo it.
func (e *environment) tellSteps(steps []step.Step, verb string) {
	for _, step := range steps {
		e.say("%s %s", verb, step.What)
		for _, sql := range step.SQL {
			e.say("    %s", indented(sql))
		}
		for _, sql := range step.Undo {
			e.say("  undo: %s", indented(sql))
		}
	}
}

// explained gives the errors of the stream that a person must act on their exit status and way out.
func explained(err error) error {
	fatal, ok := errors.AsType[*replication.FatalError](err)
	if !ok {
		return err
	}
	code := exitUsage
	switch fatal.Kind {
	case replication.NotSetUp:
		code = exitNotSetUp
	case replication.Conflict:
		code = exitConflict
	case replication.Lost:
		code = exitFailed
	case replication.Standby:
		code = exitConnect
	case replication.OtherServer:
	}
	return fail(code, err, fatal.Way)
}
