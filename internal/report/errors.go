package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// ErrorGroup is rows of a pipeline that have the same trouble.
type ErrorGroup struct {
	Pipeline string    `json:"pipeline"`
	State    string    `json:"state"` // failed, retrying
	Class    string    `json:"class"`
	Code     string    `json:"code"`
	Rows     int64     `json:"rows"`
	First    time.Time `json:"first_committed_at"` // of their changes
	Last     time.Time `json:"last_committed_at"`
	Key      string    `json:"sample_key"` // of one of them
	Message  string    `json:"sample_message"`
}

// Errors returns what goes wrong with rows of pipelines, or of all, the most frequent first.
func Errors(ctx context.Context, db database.DB, pipelines []string) ([]ErrorGroup, error) {
	return collect(ctx, db, "group errors", pgx.RowToStructByPos[ErrorGroup], "error_groups",
		pgx.StrictNamedArgs{"pipelines": pipelines})
}
