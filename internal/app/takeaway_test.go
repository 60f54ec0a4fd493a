package app

import (
	"log/slog"
	"os"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// TestP5_APipelineThatAnotherProcessHasRemoved: plan and apply beside a sidecar that reads the same file, and two
// sidecars that read it, find a pipeline that is gone a moment later.
func TestP5_APipelineThatAnotherProcessHasRemoved(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	for _, dry := range []bool{true, false} {
		var told control.Configured
		err := dismiss(t.Context(), slog.New(slog.DiscardHandler), db.Pool, "gone", dry, &told)
		if err != nil || told.Removed != nil {
			t.Errorf("dry run %t: removed %v, error %v", dry, told.Removed, err)
		}
	}
}
