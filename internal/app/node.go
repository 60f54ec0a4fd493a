// Package app is the running program: it owns what lives while the program lives, connections, embedders, the sidecar,
// the listeners and the indexes that are built, and ends all of it in order. It prints nothing, parses nothing and
// reads no environment; what a person may want to hear on the way it tells through Options.
package app

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// Node is one run of the program. It is safe for concurrent use.
type Node struct {
	common

	o       Options
	one     *Database       // nil: there are several
	several *several        // nil: there is one
	none    *observe.Source // of several: how the program stands, apart from them
}

func newNode(o Options, phase observe.Phase, hasDatabase bool) *Node {
	if o.Working == nil {
		o.Working = func(context.Context) {}
	}
	if o.Setup == nil {
		o.Setup = func(setup.Report) {}
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	n := &Node{o: o, common: common{
		plugins: embedders.New(o.source()), database: hasDatabase, inWork: limit.NewInWork(o.Config.Limits.InWork),
	}}
	n.observer = observe.New(observe.Options{
		Config: o.Config, Log: o.Log, Build: o.Build, Plugins: n.plugins, Several: o.Config.Several(),
	})
	if o.Config.Several() {
		n.shared, n.budget = newServices(o.Config), worker.NewBudget(0)
		n.none = n.observer.None(o.Config)
		return n
	}
	n.one = newDatabase(o, n.common, "", phase)
	return n
}

// Snapshot tells how the program stands, from what is known: it asks nobody. It takes the locks that the work of the
// parts takes: while one of them is not given back, it does not return.
func (n *Node) Snapshot() observe.Snapshot {
	if n.one == nil {
		return n.none.Snapshot()
	}
	return n.one.source.Snapshot()
}

// databases are those that are worked now.
func (n *Node) databases() []*Database {
	if n.several == nil {
		return []*Database{n.one}
	}
	n.several.mu.Lock()
	defer n.several.mu.Unlock()
	var list []*Database
	for _, t := range n.several.list {
		list = append(list, t.shown.Load().db)
	}
	return list
}

// Plugins are the embedders in use. Run closes them at its end; a program that does not run it does.
func (n *Node) Plugins() *embedders.Pool { return n.plugins }

// Reload has plugins start again beside themselves and take over, for somebody, whose name goes into the audit where
// there is a database. No names mean all that are in use.
func (n *Node) Reload(ctx context.Context, by string, plugins []string) []control.Reloaded {
	list := n.plugins.Reload(ctx, plugins)
	// The caller may have gone; it is done all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	for _, db := range n.databases() {
		pool := db.audit.Load()
		if pool == nil {
			continue
		}
		if err := verbs.New(pool, by).NoteReloads(ctx, list); err != nil {
			db.o.Log.WarnContext(ctx, "the audit does not tell of reloaded plugins", "by", by, "error", err)
		}
	}
	return list
}

// Configure takes over the configuration as it is written down now, for somebody, whose name goes into the audit with
// the action: all of it, or nothing, where something stands in the way.
func (n *Node) Configure(ctx context.Context, action, by string) control.Configured {
	if n.several != nil {
		return n.several.configure(ctx, action, by, false)
	}
	return n.one.Configure(ctx, action, by)
}

// auditTimeout is how long the entry of something that is done may take.
const auditTimeout = 10 * time.Second

// begin opens what stands around the work: probes and metrics, and the control socket. The function it returns closes
// them, and then the plugins, which an error has closed already.
func (n *Node) begin(ctx context.Context) (end func() error, err error) {
	stop, err := n.observer.Listen(ctx)
	if err != nil {
		return nil, errors.Join(err, n.plugins.Close())
	}
	closeSocket := n.control(ctx)
	return func() error {
		closeSocket()
		return errors.Join(stop(), n.plugins.Close())
	}, nil
}

// control opens the socket through which programs of the same user see and reload what runs. One that cannot be had is
// no reason not to run. The function it returns closes it.
func (n *Node) control(ctx context.Context) (stop func()) {
	serving, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	server, err := control.Listen(serving, control.Options{
		Dir: n.o.Config.ControlFolder(), Log: n.o.Log,
		Reload: func(ctx context.Context, plugins []string) []control.Reloaded {
			return n.Reload(ctx, verbs.Person()+" by plugins reload", plugins)
		},
		Configure: func(ctx context.Context) control.Configured {
			done := n.Configure(ctx, "reload", verbs.Person()+" by reload")
			done.Pid = os.Getpid()
			return done
		},
		State: func() control.State {
			s := n.Snapshot()
			state := s.Control()
			for _, db := range n.databases() {
				switch which := db.which.Load(); {
				case which == nil:
				case n.several != nil:
					state.Databases = append(state.Databases, *which)
				default:
					state.Database = *which
				}
			}
			return state
		},
	})
	if err != nil {
		n.o.Log.WarnContext(ctx, "no control socket: plugins reload and plugins list cannot reach this sidecar, SIGHUP does",
			"error", err)
	} else {
		wg.Go(func() {
			if err := server.Run(serving); err != nil && !errors.Is(err, context.Canceled) {
				n.o.Log.WarnContext(ctx, "control socket closed", "error", err)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}
