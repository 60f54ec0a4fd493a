package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

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
