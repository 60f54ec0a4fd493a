package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Worker is a sidecar that runs, or ended a short while ago.
type Worker struct {
	Sidecar

	Host      string    `json:"host"`
	Role      string    `json:"role"` // all, stream or work; empty: it is of a version that did not say
	Runs      bool      `json:"runs"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"last_seen_at"`
	Leased    int64     `json:"rows_leased"` // that it is embedding
}

// Workers returns the sidecars that work the queue of a database, and those that ended a short while ago.
func Workers(ctx context.Context, db database.DB) ([]Worker, error) {
	return collect(ctx, db, "list the workers", pgx.RowToStructByPos[Worker], "list_workers")
}

// Lane is how many rows of a pipeline have a priority and a state, and for how long they wait.
type Lane struct {
	Pipeline string  `json:"pipeline"`
	Priority string  `json:"priority"`
	State    string  `json:"state"`
	Rows     int64   `json:"rows"`
	Oldest   float64 `json:"oldest_seconds"`
	Newest   float64 `json:"newest_seconds"`
	Average  float64 `json:"average_ms"`
}

// Lanes counts the tasks of pipelines by priority and state, all of them.
func Lanes(ctx context.Context, db database.DB, pipelines []string) ([]Lane, error) {
	return collect(ctx, db, "count the lanes", pgx.RowToStructByPos[Lane], "count_lanes",
		pgx.StrictNamedArgs{"pipelines": pipelines})
}

// RowState is where a row stands.
type RowState struct {
	Key string `json:"key"`
	// pending: it has no vector yet; stale: its vector is of an older text; no_text: there is nothing to embed
	State     string     `json:"state"`
	WrittenAt *time.Time `json:"written_at"` // null: never
	ChangedAt *time.Time `json:"changed_at"` // null: no change waits
}

// RowStates tells where rows of a pipeline stand. Rows that were never looked at, nor wait for it, are left out.
func RowStates(ctx context.Context, db database.DB, pipeline string, keys []string) ([]RowState, error) {
	return collect(ctx, db, "look where rows stand", pgx.RowToStructByPos[RowState], "row_states",
		pgx.StrictNamedArgs{"pipeline": pipeline, "row_keys": keys})
}
