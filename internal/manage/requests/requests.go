// Package requests creates, reads and waits for requests for pipelines that are declared in the database instead of in
// a file. A running sidecar, or embedsidecar apply, executes them.
package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Refused is the state of a refused request.
const Refused = "refused"

// Request is a request with its progress.
type Request struct {
	ID         int64          `json:"request_id"`
	Action     string         `json:"action" enum:"create,change,drop"`
	Pipeline   string         `json:"pipeline"`
	Definition map[string]any `json:"definition" doc:"Of create all of it; of change the keys that change"`
	State      string         `json:"state" enum:"waiting,in_work,done,planned,refused"`
	Reason     string         `json:"reason,omitempty" doc:"Why it is refused, or what it waits for"`
	Hints      []string       `json:"hints,omitempty"`
	Role       string         `json:"role"`
	SaidBy     string         `json:"said_by,omitempty"`
	At         time.Time      `json:"requested_at"`
	Finished   *time.Time     `json:"finished_at,omitempty"`
	DryRun     bool           `json:"dry_run" doc:"Nothing is changed: plan has what would change"`

	Plan *control.Configured `json:"plan,omitempty" doc:"What a dry run would change, in the form of /plan"`
}

// Ended reports whether it is done, planned or refused.
func (r *Request) Ended() bool { return r.Finished != nil }

// Ask requests that a pipeline is created by a definition, changed in some keys, or dropped. by is the requesting user,
// if it is not the role. A dry run only plans. It returns the number of the request.
func Ask(ctx context.Context, pool *pgxpool.Pool, action, pipeline string, definition map[string]any, by string,
	dry bool,
) (id int64, err error) {
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return 0, err
	}
	args := pgx.StrictNamedArgs{"by": by, "dry": dry}
	var call string
	switch action {
	case "create":
		call, args["definition"] = "create_pipeline(@definition::jsonb, said_by => @by, dry_run => @dry)", definition
	case "change":
		call, args["definition"] = "change_pipeline(@pipeline, @definition::jsonb, said_by => @by, dry_run => @dry)", definition
		args["pipeline"] = pipeline
	default:
		call, args["pipeline"] = "drop_pipeline(@pipeline, said_by => @by, dry_run => @dry)", pipeline
	}
	err = pool.QueryRow(ctx, "SELECT request_id FROM embedsidecar."+call, args).Scan(&id)
	return id, generations.Told(err)
}

// Read returns a request.
func Read(ctx context.Context, pool *pgxpool.Pool, id int64) (Request, error) {
	list, err := read(ctx, pool, &id, 1)
	if err != nil || len(list) == 1 {
		return append(list, Request{})[0], err
	}
	return Request{}, problem.New(problem.NoMatch, fmt.Errorf("there is no request %d", id))
}

// List returns the newest requests.
func List(ctx context.Context, pool *pgxpool.Pool, most int) ([]Request, error) {
	return read(ctx, pool, nil, most)
}

func read(ctx context.Context, pool *pgxpool.Pool, id *int64, most int) ([]Request, error) {
	list, err := database.Collect(ctx, pool, "pipeline_requests", pgx.RowToStructByPos[Request],
		pgx.StrictNamedArgs{"id": id, "most": most})
	return list, wrap.Errorf(err, "read requests for pipelines")
}

// Wait returns a request once it is done, planned or refused, or its state after a while.
func Wait(ctx context.Context, pool *pgxpool.Pool, id int64, longest time.Duration) (Request, error) {
	for end := time.Now().Add(longest); ; {
		r, err := Read(ctx, pool, id)
		if err != nil || r.Ended() || time.Now().After(end) {
			return r, err
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return r, context.Cause(ctx)
		}
	}
}
