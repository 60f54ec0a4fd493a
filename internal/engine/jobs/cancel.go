package jobs

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Orphan is a job whose pipeline was removed or is about to be.
type Orphan struct {
	JobID                          int64
	Pipeline, Plugin, Model, Nonce string
	State, ProviderID              string
	Hold                           *int64
}

// Orphans returns the jobs of removed pipelines, or of all pipelines.
func Orphans(ctx context.Context, db database.Querier, all bool) ([]Orphan, error) {
	list, err := database.Collect(ctx, db, "orphaned_jobs", pgx.RowToStructByName[Orphan], pgx.StrictNamedArgs{"all": all})
	return list, wrap.Errorf(err, "look for batch jobs of removed pipelines")
}

// UnderWay reports whether the provider has or may have the job.
func (o *Orphan) UnderWay() bool { return o.State == "submitting" || o.State == "running" }

// CancelOrphans cancels the jobs of removed pipelines at their providers and deletes them. A job whose model is no
// longer configured cannot be cancelled; that is logged.
func CancelOrphans(ctx context.Context, db database.DB, log *slog.Logger,
	service func(p pipeline.Pipeline) (*embed.Service, error),
) error {
	list, err := Orphans(ctx, db, false)
	if err != nil {
		return err
	}
	var failed []error
	for i := range list {
		o := &list[i]
		if o.UnderWay() {
			switch err := o.Cancel(ctx, service); {
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

// Cancel cancels the job at the provider. It looks up an unknown job ID by the nonce.
func (o *Orphan) Cancel(ctx context.Context, service func(p pipeline.Pipeline) (*embed.Service, error)) error {
	s, err := service(pipeline.Pipeline{Spec: pipeline.Spec{Name: o.Pipeline, Plugin: o.Plugin, Model: o.Model}})
	if err != nil { // its model is no longer configured
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

// forget deletes a job. Its cost so far is unknown, so the expected cost is charged.
func (o *Orphan) forget(ctx context.Context, db database.DB) error {
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
