package observe

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
)

// A watchdog that only a timer feeds would never trigger.
func TestSnapshot_ALockThatNobodyGivesBackStarvesTheWatchdog(t *testing.T) {
	t.Parallel()
	c := &config.Config{}
	o := New(Options{Config: c, Plugins: embedders.New(embedders.Source{Config: c})}).Source(c, "", Queries)
	o.mu.Lock()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = o.Snapshot()
	}()
	select {
	case <-answered:
		t.Error("it answers while its state is locked")
	case <-time.After(100 * time.Millisecond):
	}
	o.mu.Unlock()
	<-answered
}
