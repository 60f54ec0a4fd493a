package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
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
	return errorGroups(ctx, db, pipelines, nil)
}

// FewErrors does so of 100,000 rows of each pipeline at most: as far as status counts.
func FewErrors(ctx context.Context, db database.DB, pipelines []string) ([]ErrorGroup, error) {
	most := int64(taskCap)
	return errorGroups(ctx, db, pipelines, &most)
}

func errorGroups(ctx context.Context, db database.DB, pipelines []string, most *int64) ([]ErrorGroup, error) {
	return collect(ctx, db, "group errors", pgx.RowToStructByPos[ErrorGroup], "error_groups",
		pgx.StrictNamedArgs{"pipelines": pipelines, "cap": most})
}

// Line is the group in one line, with one of its rows.
func (g *ErrorGroup) Line() string {
	what := " given up"
	if g.State == "retrying" {
		what = " failed, to be tried again"
	}
	such := ", such as row " + g.Key
	if g.Rows == 1 {
		such = ", row " + g.Key
	}
	more := ""
	if g.Rows >= taskCap {
		more = " or more"
	}
	return g.Pipeline + ": " + wording.Count(g.Rows, "row") + more + what + ", " + g.Class + " " + g.Code + such + ": " +
		g.Message
}
