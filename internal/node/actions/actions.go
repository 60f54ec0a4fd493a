// Package actions is what a person can have done to pipelines: pause, resume, retry, rescan, reembed, verify. It needs
// the tables only, so it works whether a sidecar runs or not; those that run hear of it within seconds. Every way in,
// command line or HTTP, goes through here.
package actions

import (
	"context"
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/node/observe"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/worker"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Actions acts on the pipelines of a database.
type Actions struct{ pool *pgxpool.Pool }

// New acts through a pool, which stays the caller's.
func New(pool *pgxpool.Pool) *Actions { return &Actions{pool: pool} }

// Outcome is what became of one pipeline; Pipeline is empty for the switch over all of them.
type Outcome struct {
	Pipeline string `json:"pipeline"`
	Result   string `json:"result"`
	Rows     int64  `json:"rows,omitempty"`

	Unknown []string `json:"-"` // keys that were asked for and that the pipeline has no row with
}

// Switched is what became of a switch.
type Switched struct {
	Outcomes []Outcome
	Paused   []string // those that stay paused by their own name, where the switch over all was turned on
}

// Switch lets pipelines go on, or pauses them: those of these names, or without any all of them by the switch that is
// over all. A dry run tells what it would do.
func (a *Actions) Switch(ctx context.Context, on bool, names []string, dry bool) (Switched, error) {
	found, err := lookup.Named(ctx, a.pool, names)
	if err != nil {
		return Switched{}, err
	}
	s := Switched{Outcomes: []Outcome{}}
	if len(names) == 0 {
		turned, err := a.turn(ctx, dry, "switch_all", pgx.StrictNamedArgs{"on": on})
		if err != nil {
			return Switched{}, err
		}
		s.Outcomes = append(s.Outcomes, switched("", on, turned > 0, dry))
		for i := range found {
			if on && !found[i].Enabled {
				s.Paused = append(s.Paused, found[i].Name)
			}
		}
		return s, nil
	}
	for i := range found {
		turned, err := a.turn(ctx, dry, "switch_pipeline", pgx.StrictNamedArgs{"on": on, "pipeline_id": found[i].ID})
		if err != nil {
			return Switched{}, err
		}
		s.Outcomes = append(s.Outcomes, switched(found[i].Name, on, turned > 0, dry))
	}
	return s, nil
}

func switched(name string, on, turned, dry bool) Outcome {
	done, already := "paused", "already_paused"
	if on {
		done, already = "resumed", "already_on"
	}
	switch {
	case !turned:
		return Outcome{Pipeline: name, Result: already}
	case dry:
		return Outcome{Pipeline: name, Result: "would_be_" + done}
	}
	return Outcome{Pipeline: name, Result: done}
}

// Retry gives dead letters and rows that wait for another try one at once, as a change of the row would: those of the
// pipelines that the words name, or of all, or those of one pipeline whose keys follow its name. A dry run only counts.
func (a *Actions) Retry(ctx context.Context, words []string, dry bool) ([]Outcome, error) {
	found, keys, err := lookup.NamedRows(ctx, a.pool, words)
	if err != nil {
		return nil, err
	}
	list := []Outcome{}
	for i := range found {
		unknown, err := report.UnknownKeys(ctx, a.pool, found[i].ID, keys)
		if err != nil {
			return nil, err
		}
		n, err := a.retry(ctx, found[i].ID, keys, dry)
		if err != nil {
			return nil, refused(err)
		}
		o := outcome(found[i].Name, n, dry, "nothing_to_retry", "would_be_retried", "retried")
		o.Unknown = unknown
		list = append(list, o)
	}
	return list, nil
}

func (a *Actions) retry(ctx context.Context, pipelineID int32, keys []string, dry bool) (n int64, err error) {
	if !dry {
		return queue.Retry(ctx, a.pool, pipelineID, keys...)
	}
	args := pgx.StrictNamedArgs{"pipeline_id": pipelineID, "row_keys": keys}
	err = a.pool.QueryRow(ctx, sqlfiles.Query("count_retryable"), args).Scan(&n)
	return n, err
}

// Rescan has every row of pipelines compared with what was written for it.
func (a *Actions) Rescan(ctx context.Context, names []string, dry bool) ([]Outcome, error) {
	found, err := lookup.Named(ctx, a.pool, names)
	if err != nil {
		return nil, err
	}
	list := []Outcome{}
	for i := range found {
		args := pgx.StrictNamedArgs{"pipeline_ids": []int32{found[i].ID}, "reason": "asked for"}
		if _, err := a.turn(ctx, dry, "request_scan", args); err != nil {
			return nil, err
		}
		list = append(list, outcome(found[i].Name, 0, dry, "", "scan_would_be_requested", "scan_requested"))
	}
	return list, nil
}

// Reembed has rows of a pipeline embedded anew though their texts are what they were, or every row without keys. A dry
// run only counts those that have a vector.
func (a *Actions) Reembed(ctx context.Context, name string, keys []string, dry bool) (Outcome, error) {
	found, err := lookup.Named(ctx, a.pool, []string{name})
	if err != nil {
		return Outcome{}, err
	}
	unknown, err := report.UnknownKeys(ctx, a.pool, found[0].ID, keys)
	if err != nil {
		return Outcome{}, err
	}
	n, err := a.anew(ctx, &found[0], keys, dry)
	if err != nil {
		return Outcome{}, err
	}
	o := outcome(found[0].Name, n, dry, "nothing_to_reembed", "reembed_would_be_requested", "reembed_requested")
	o.Unknown = unknown
	return o, nil
}

func (a *Actions) anew(ctx context.Context, p *pipeline.Pipeline, keys []string, dry bool) (n int64, err error) {
	if len(keys) == 0 {
		keys = nil
	}
	if dry {
		args := pgx.StrictNamedArgs{"pipeline_id": p.ID, "row_keys": keys}
		err = a.pool.QueryRow(ctx, sqlfiles.Query("count_embedded"), args).Scan(&n)
	} else {
		n, err = worker.Anew(ctx, a.pool, p, keys)
	}
	return n, refused(err)
}

// Failed returns the rows of pipelines that could not be embedded, at most so many of each; redact takes what is
// secret out of their messages.
func (a *Actions) Failed(ctx context.Context, names []string, limit int,
	redact func(string) string,
) ([]report.FailedRow, error) {
	found, err := lookup.Named(ctx, a.pool, names)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(found))
	for i := range found {
		all[i] = found[i].Name
	}
	list, err := report.Failed(ctx, a.pool, all, limit)
	observe.HideSecrets(list, redact)
	return append([]report.FailedRow{}, list...), err
}

// outcome words what was done to rows of a pipeline; nothing is the word where there were none.
func outcome(name string, rows int64, dry bool, nothing, would, done string) Outcome {
	o := Outcome{Pipeline: name, Result: done, Rows: rows}
	switch {
	case rows == 0 && nothing != "":
		o.Result = nothing
	case dry:
		o.Result = would
	}
	return o
}

// errDryRun takes a transaction back that was only to tell what it would do.
var errDryRun = errors.New("dry run")

// turn runs a statement and tells how many rows it changed; a dry run is taken back.
func (a *Actions) turn(ctx context.Context, dry bool, query string, args pgx.StrictNamedArgs) (n int64, err error) {
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlfiles.Query(query), args)
		n = tag.RowsAffected()
		if err == nil && dry {
			err = errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return n, refused(err)
}

// refused tells whose role may do it, where the server says that this one may not.
func refused(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege {
		return problem.New(problem.Permission, err,
			"use the role that owns the schema embedsidecar, the one that ran embedsidecar init")
	}
	return err
}
