package main

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/embedsidecar/embedsidecar/replication"
	"github.com/embedsidecar/embedsidecar/setup"
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
		env.say("warning: %s", warning)
	}
	return done, err
}

// tellSteps tells a person what was made and how to undo it.
func (e *environment) tellSteps(steps []setup.Step, verb string) {
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
