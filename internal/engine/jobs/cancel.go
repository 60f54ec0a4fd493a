package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// orphan is a job whose pipeline is gone.
type orphan struct {
	JobID                          int64
	Pipeline, Plugin, Model, Nonce string
	State, ProviderID              string
	Hold                           *int64
}

// CancelOrphans has providers give up the jobs of pipelines that are gone, and forgets them. A job whose model is not
// configured here any more cannot be cancelled: the log says so.
func CancelOrphans(ctx context.Context, db database.DB, log *slog.Logger,
	service func(p pipeline.Pipeline) (*embed.Service, error),
) error {
	list, err := database.Collect(ctx, db, "orphaned_jobs", pgx.RowToStructByName[orphan])
	if err != nil {
		return fmt.Errorf("look for batch jobs of removed pipelines: %w", err)
	}
	var failed []error
	for i := range list {
		o := &list[i]
		if o.State == "submitting" || o.State == "running" {
			switch err := o.cancel(ctx, service); {
			case ctx.Err() != nil:
				return err
			case err == nil:
				log.InfoContext(ctx, "batch job cancelled: its pipeline is gone", "pipeline", o.Pipeline, "job", o.ProviderID)
			case lasting(err):
				log.WarnContext(ctx, "batch job of a removed pipeline cannot be cancelled here: cancel it at the provider",
					"pipeline", o.Pipeline, "job", o.ProviderID, "nonce", o.Nonce, "error", err)
			default:
				failed = append(failed, err)
				continue
			}
		}
		if err := o.forget(ctx, db); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func (o *orphan) cancel(ctx context.Context, service func(p pipeline.Pipeline) (*embed.Service, error)) error {
	s, err := service(pipeline.Pipeline{Spec: pipeline.Spec{Name: o.Pipeline, Plugin: o.Plugin, Model: o.Model}})
	if err != nil { // it is not configured any more
		return &embed.Error{Class: embed.Configuration, Code: "no_embedder", Err: err}
	}
	provider, err := s.Batcher(ctx)
	if err != nil {
		return err
	}
	if o.ProviderID == "" {
		told, err := provider.Poll(ctx, o.Nonce, "")
		if err != nil || told.ID == "" {
			return err
		}
		o.ProviderID = told.ID
	}
	if err := provider.Cancel(ctx, o.ProviderID); err != nil {
		return err
	}
	return failpoint.Hit("jobs/cancelled")
}

// forget deletes a job. What it has cost until then is not known, and counted as what was expected.
func (o *orphan) forget(ctx context.Context, db database.DB) error {
	return database.Transact(ctx, db, func(tx pgx.Tx) error {
		if o.Hold != nil {
			if _, err := tx.Exec(ctx, "SELECT embedsidecar.settle_budget($1, NULL)", *o.Hold); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "DELETE FROM embedsidecar.batch_job WHERE job_id = $1", o.JobID)
		return err
	})
}
