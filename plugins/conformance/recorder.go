package conformance

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// recorder keeps everything that the plugin says: its output, which comes through the host's log, and the messages of
// errors.
type recorder struct {
	mu    sync.Mutex
	leaks []string // where a text was quoted
	lines int
}

var _ slog.Handler = (*recorder)(nil)

// heard takes something that was said, and where.
func (r *recorder) heard(where, said string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines++
	if strings.Contains(said, canary) {
		r.leaks = append(r.leaks, where)
	}
}

// Enabled implements slog.Handler.
func (*recorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	if record.Message == "plugin output" {
		var said []string
		record.Attrs(func(a slog.Attr) bool {
			said = append(said, a.String()) // its line, and the fields of a structured one
			return true
		})
		r.heard("its output", strings.Join(said, " "))
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *recorder) WithGroup(string) slog.Handler { return r }
