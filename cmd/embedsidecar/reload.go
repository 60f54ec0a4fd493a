package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/control"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
)

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
				w.plugins.Reload(steering, nil)
			}
		}
	})
	server, err := control.Listen(steering, control.Options{
		Dir: w.env.config.ControlFolder(), State: w.state, Reload: w.plugins.Reload, Log: w.env.log,
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
		Plugins: w.plugins.States(), Caches: []control.Cache{},
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
