package embedders

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Reload has plugins start anew beside themselves and take over, with what catalogue and files hold now. No names
// mean all that are in use. A plugin that cannot goes on as it was.
func (e *Pool) Reload(ctx context.Context, names []string) []control.Reloaded {
	results := []control.Reloaded{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, h := range e.All() {
		if len(names) > 0 && !slices.Contains(names, h.Plugin) {
			continue
		}
		wg.Go(func() {
			r := control.Reloaded{Plugin: h.Plugin, Result: "reloaded"}
			if err := e.reloadOne(ctx, h); err != nil {
				r.Result, r.Detail = "refused", e.source.Redact(err.Error())
				e.source.Log.ErrorContext(ctx, "plugin not reloaded: it goes on as it was", "plugin", h.Plugin, "error", err,
					"hints", problem.Hints(err))
			} else {
				e.source.Log.InfoContext(ctx, "plugin reloaded", "plugin", h.Plugin, "version", h.Stats().Version)
			}
			r.Model, r.Version = h.Model(), h.Stats().Version
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		})
	}
	wg.Wait()
	slices.SortFunc(results, func(a, b control.Reloaded) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Model, b.Model))
	})
	return results
}

func (e *Pool) reloadOne(ctx context.Context, h *Hosted) error {
	found, err := e.source.find(h.key.Plugin, h.key.Model)
	if err != nil {
		return err
	}
	if err := h.Runner.Reload(ctx, found); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.path = found.PluginPath
	return nil
}

// State is how one plugin with one model stands.
type State struct {
	Plugin string
	Model  string // "" before it has described itself
	Path   string // of its program
	Stats  host.Stats

	// Processes are those that run, with their memory: to measure it takes a look at all processes of the machine.
	Processes func() []host.Process
}

// States tells of the plugins in use.
func (e *Pool) States() []State {
	all := e.All()
	list := make([]State, len(all))
	for i, h := range all {
		stats := h.Stats()
		list[i] = State{
			Plugin: h.Plugin, Model: h.Model(), Stats: stats,
			Processes: func() []host.Process { return host.Measured(stats.Processes) },
		}
		h.mu.Lock()
		list[i].Path = h.path
		h.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b State) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Model, b.Model))
	})
	return list
}
