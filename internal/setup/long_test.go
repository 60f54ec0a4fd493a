package setup_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestInit_AStepThatRewritesATableMayTakeLong: only steps that are done in a moment have a deadline.
func TestInit_AStepThatRewritesATableMayTakeLong(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	r := step.Runner{
		Pool: db.Pool, LockTimeout: time.Minute, Limit: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
	for _, long := range []bool{false, true} {
		err := r.Execute(t.Context(), step.Action{Step: step.Step{SQL: []string{"SELECT pg_sleep(0.5)"}}, Long: long})
		if errors.Is(err, database.ErrTooLong) == long || long && err != nil {
			t.Errorf("long %t: %v", long, err)
		}
	}
}
