package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/control"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
)

// reload has plugins start anew beside themselves and take over, with what catalogue and files hold now. No names
// mean all that are in use. A plugin that cannot goes on as it was.
func (e *embedders) reload(ctx context.Context, names []string) []control.Reloaded {
	results := []control.Reloaded{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, h := range e.all() {
		if len(names) > 0 && !slices.Contains(names, h.plugin) {
			continue
		}
		wg.Go(func() {
			r := control.Reloaded{Plugin: h.plugin, Result: "reloaded"}
			if err := e.reloadOne(ctx, h); err != nil {
				r.Result, r.Detail = "refused", e.env.redact.Text(err.Error())
				e.env.log.ErrorContext(ctx, "plugin not reloaded: it goes on as it was", "plugin", h.plugin, "error", err,
					"ways_out", problem.Hints(err))
			} else {
				e.env.log.InfoContext(ctx, "plugin reloaded", "plugin", h.plugin, "version", h.Stats().Version)
			}
			r.Model = h.model()
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

func (e *embedders) reloadOne(ctx context.Context, h *hosted) error {
	options, found, err := e.env.hostOptions(h.key[0], h.key[1])
	if err != nil {
		return err
	}
	if err := h.Reload(ctx, options); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.path = found.PluginPath
	return nil
}

// states tells of the plugins in use.
func (e *embedders) states() []control.Plugin {
	list := []control.Plugin{}
	for _, h := range e.all() {
		s, model := h.Stats(), h.model()
		h.mu.Lock()
		p := control.Plugin{
			Plugin: h.plugin, Model: model, Version: s.Version, Path: h.path, Circuit: s.Circuit, Reason: s.Reason,
			RetrySeconds: s.RetryIn.Seconds(),
			Wanted:       s.Wanted, Processes: h.Processes(), Restarts: s.Restarts(), Hangs: s.Hangs, BadAnswers: s.BadAnswers,
			Calls: s.Calls, Texts: s.Texts,
		}
		h.mu.Unlock()
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b control.Plugin) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Model, b.Model))
	})
	return list
}

// steer lets the plugins of a running sidecar be reloaded, by SIGHUP and through the control socket. A socket that
// cannot be had is no reason not to run. The function it returns ends that.
func (w *watch) steer(ctx context.Context) (stop func()) {
	steering, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	wg.Go(func() {
		for {
			select {
			case <-steering.Done():
				return
			case <-hangups:
				w.plugins.reload(steering, nil)
			}
		}
	})
	server, err := control.Listen(steering, control.Options{
		Dir: w.env.config.ControlFolder(), State: w.state, Reload: w.plugins.reload, Log: w.env.log,
	})
	if err != nil {
		w.env.log.WarnContext(ctx, "no control socket: plugins reload and cache stats cannot reach this sidecar, SIGHUP does",
			"error", err)
	} else {
		wg.Go(func() {
			if err := server.Run(steering); err != nil && !errors.Is(err, context.Canceled) {
				w.env.log.WarnContext(ctx, "control socket closed", "error", err)
			}
		})
	}
	return func() {
		signal.Stop(hangups)
		cancel()
		wg.Wait()
	}
}

// state is what the control socket tells.
func (w *watch) state() control.State {
	w.mu.Lock()
	s := w.sidecar
	w.mu.Unlock()
	state := control.State{
		Instance: w.env.config.Instance, Slot: w.env.config.Slot.Name, Version: thisBuild().Version, Pid: os.Getpid(),
		Plugins: w.plugins.states(), Caches: []control.Cache{},
	}
	if s != nil {
		state.Caches = append(state.Caches, cachesOf(s)...)
	}
	return state
}

// cachesOf tells what is remembered for each model, however many pipelines use it.
func cachesOf(s *sidecar.Sidecar) []control.Cache {
	var list []control.Cache
	seen := map[*embed.Service]bool{}
	for _, state := range s.States() {
		p := state.Pipeline
		service := s.Service(p.Plugin, p.Model)
		if service == nil || seen[service] {
			continue
		}
		seen[service] = true
		held, stats := service.Cache(), service.Stats()
		c := control.Cache{
			Plugin: p.Plugin, Model: p.Model, Entries: held.Entries, Bytes: held.Bytes, Limit: held.Limit,
			Hits: stats.Saved.Load(), Misses: stats.Missed.Load(),
		}
		if all := c.Hits + c.Misses; all > 0 {
			c.HitRate = float64(c.Hits) / float64(all)
		}
		list = append(list, c)
	}
	return list
}
