package worker

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Whoever says nothing gets the same from the configuration and from the worker.
func TestNew_DefaultsAreTheConfigurations(t *testing.T) {
	c, o := config.Default(), New(Options{Pipeline: &pipeline.Pipeline{}}).o
	if o.BatchRows != c.Workers.BatchRows || o.Lease != c.Lease {
		t.Errorf("batches of %d for %s, the configuration says %d for %s", o.BatchRows, o.Lease, c.Workers.BatchRows, c.Lease)
	}
	if want := (Retry{MaxAttempts: c.Retry.MaxAttempts, Initial: c.Retry.Initial, Max: c.Retry.Max}); o.Retry != want {
		t.Errorf("retries %+v, the configuration says %+v", o.Retry, want)
	}
}
