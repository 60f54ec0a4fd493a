package embedders

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/embedsidecar/embedsidecar/internal/control"
	"github.com/embedsidecar/embedsidecar/internal/problem"
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
					"ways_out", problem.Hints(err))
			} else {
				e.source.Log.InfoContext(ctx, "plugin reloaded", "plugin", h.Plugin, "version", h.Stats().Version)
			}
			r.Model = h.Model()
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
	found, err := e.source.find(h.key[0], h.key[1])
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

// States tells of the plugins in use.
func (e *Pool) States() []control.Plugin {
	list := []control.Plugin{}
	for _, h := range e.All() {
		s, model := h.Stats(), h.Model()
		h.mu.Lock()
		p := control.Plugin{
			Plugin: h.Plugin, Model: model, Version: s.Version, Path: h.path, Circuit: s.Circuit, Reason: s.Reason,
			RetrySeconds: s.RetryIn.Seconds(),
			Wanted:       s.Wanted, Processes: host.Measured(s.Processes), Restarts: s.Restarts(), Hangs: s.Hangs,
			BadAnswers: s.BadAnswers,
			Calls:      s.Calls, Texts: s.Texts,
		}
		h.mu.Unlock()
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b control.Plugin) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Model, b.Model))
	})
	return list
}
