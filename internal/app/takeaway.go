package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/jobs"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/queue"
)

// TakeAwayOptions says what to remove.
type TakeAwayOptions struct {
	All        bool
	Pipeline   string // the full name, if not All: a removal must not guess
	Embeddings bool   // remove the vectors, too
	DryRun     bool
}

// remove removes a pipeline and what is stored about its rows. A sidecar later deletes what cannot be deleted now.
func remove(ctx context.Context, log *slog.Logger, o uninstall.PipelineOptions) (done uninstall.Removed, err error) {
	o.Log = log
	if done, err = uninstall.Pipeline(ctx, o); err != nil || o.DryRun {
		return done, err
	}
	if _, err := queue.DropLeftovers(ctx, o.Pool); err != nil {
		log.InfoContext(ctx, "tasks and ledger of a removed pipeline are deleted later", "pipeline", o.Pipeline, "error", err)
	}
	return done, nil
}

// dismiss removes a pipeline that is no longer configured, and adds that to told. Its vectors stay. It is no error if
// another process has removed the pipeline meanwhile.
func dismiss(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool, name string, dry bool, told *control.Configured,
) error {
	done, err := remove(ctx, log, uninstall.PipelineOptions{Pool: pool, Pipeline: name, DryRun: dry, Keep: true})
	if wrong, ok := errors.AsType[*refusal.ConfigError](err); ok && wrong.Code == code.NoPipeline {
		return nil
	}
	if err != nil {
		return err
	}
	told.Removed, told.Steps = append(told.Removed, name), append(told.Steps, done.SQL...)
	told.Lost = append(told.Lost, lost(name, done))
	return nil
}

// TakeAway removes what init made. tell gets notes for the user.
func TakeAway(ctx context.Context, n Options, o TakeAwayOptions, tell func(what string)) (sql []string, err error) {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	server, err := open.Server(ctx, pool, connection.Few)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	under, err := jobsOf(ctx, server, o)
	if err != nil {
		return nil, err
	}
	var done uninstall.Removed
	if o.All {
		done, err = uninstall.All(ctx, uninstall.Options{
			Pool: server, Embeddings: o.Embeddings, DryRun: o.DryRun, Log: n.Log,
		})
	} else {
		done, err = remove(ctx, n.Log, uninstall.PipelineOptions{
			Pool: server, Pipeline: o.Pipeline, Embedding: o.Embeddings, DryRun: o.DryRun,
		})
	}
	if _, nothing := errors.AsType[*refusal.NotSetUpError](err); nothing {
		tell("nothing to remove: the database is not set up")
		err = nil
	}
	if !o.All && !o.DryRun && (err != nil || len(done.SQL) > 0) { // All removes the audit, too
		told := control.Configured{Steps: done.SQL}
		if err != nil {
			told.Reason = n.Redact(database.Words(err))
		}
		if failed := note(ctx, server, "uninstall", o.Pipeline, verbs.Person(), told.Filled(), err); failed != nil {
			n.Log.DebugContext(ctx, "could not write the removal into the audit", "error", failed)
		}
	}
	if err == nil {
		err = n.endJobs(ctx, under, o.DryRun, tell)
	}
	if len(done.Kept) > 0 && err == nil {
		later := "now or later"
		if !o.All { // later only a comment on the table says that the vectors are ours
			later = "now; later the same call prints the statement for it"
		}
		tell(fmt.Sprintf("vectors stay in %s: --drop-embeddings removes them, too, %s", strings.Join(done.Kept, ", "), later))
	}
	return append([]string{}, done.SQL...), err
}

// jobsOf returns the providers' batch jobs of what is removed.
func jobsOf(ctx context.Context, server *pgxpool.Pool, o TakeAwayOptions) ([]jobs.Orphan, error) {
	var list []jobs.Orphan
	err := database.RetryReadOnly(ctx, server, func(tx pgx.Tx) (err error) {
		if err = catalog.Untrusted(ctx, tx); err == nil {
			list, err = jobs.Orphans(ctx, tx, true)
		}
		return err
	})
	// The database is not set up, or by a version without batch jobs. Or the role has no rights, which the removal
	// reports.
	if e, is := errors.AsType[*pgconn.PgError](err); is && e.Code == pgerrcode.UndefinedTable || database.Denied(err) {
		return nil, nil
	}
	return slices.DeleteFunc(list, func(j jobs.Orphan) bool {
		return !j.UnderWay() || !o.All && j.Pipeline != o.Pipeline
	}), err
}

// endJobs cancels batch jobs at their providers, and reports each result.
func (n *Options) endJobs(ctx context.Context, list []jobs.Orphan, dry bool, tell func(what string)) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the provider did not answer within a minute"))
	defer cancel()
	plugins := embedders.New(n.Source)
	defer func() { err = errors.Join(err, plugins.Close()) }()
	for i := range list {
		job := &list[i]
		var failed error
		if !dry {
			failed = job.Cancel(ctx, func(p pipeline.Pipeline) (*embed.Service, error) {
				embedder, err := plugins.Get(p.Plugin, p.Model)
				if err != nil {
					return nil, err
				}
				return embed.NewService(embedder, 0), nil
			})
		}
		name := fmt.Sprintf("batch job %s of pipeline %q", cmp.Or(job.ProviderID, "with metadata "+job.Nonce), job.Pipeline)
		switch {
		case dry:
			tell(name + " would be cancelled at the provider")
		case failed == nil:
			tell(name + " is cancelled at the provider")
		default:
			tell(fmt.Sprintf("%s is not cancelled (%s): cancel it at the provider; docs/batches.md has the command", name,
				n.Redact(failed.Error())))
		}
	}
	return nil
}
