// Package app is the running program. It owns connections, embedders, the sidecar, listeners and index builds, and
// closes them in order. It prints nothing, parses nothing and reads no environment. Messages for the user go through
// Options.
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
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// Node is one run of the program. It is safe for concurrent use.
type Node struct {
	common

	o       Options
	one     *Database       // nil: there are several
	several *several        // nil: there is one
	none    *observe.Source // with several databases: the status of the program itself
}

func newNode(o Options, phase observe.Phase, hasDatabase bool) *Node {
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

// Snapshot returns the status of the program without queries. It blocks while a part of the program holds its lock.
func (n *Node) Snapshot() observe.Snapshot {
	if n.one == nil {
		return n.none.Snapshot()
	}
	return n.one.source.Snapshot()
}

// databases returns the databases that run now.
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

// Plugins returns the embedders in use. Run closes them at its end. A program that does not call Run closes them
// itself.
func (n *Node) Plugins() *embedders.Pool { return n.plugins }

// Reload starts new plugin processes, which replace the running ones. No names mean all plugins in use. by is the user
// name for the audit.
func (n *Node) Reload(ctx context.Context, by string, plugins []string) []control.Reloaded {
	list := n.plugins.Reload(ctx, plugins)
	// The audit entry is written even if the caller has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	for _, db := range n.databases() {
		pool := db.audit.Load()
		if pool == nil {
			continue
		}
		if err := verbs.New(pool, by).NoteReloads(ctx, list); err != nil {
			db.o.Log.WarnContext(ctx, "could not write the reload of plugins into the audit", "by", by, "error", err)
		}
	}
	return list
}

// Configure reads the configuration again and applies all of it, or nothing if something prevents that. Several
// databases decide separately. action and by go into the audit.
func (n *Node) Configure(ctx context.Context, action, by string) control.Configured {
	if n.several != nil {
		return n.several.configure(ctx, action, by, false)
	}
	return n.one.Configure(ctx, action, by)
}

// auditTimeout limits the write of an audit entry.
const auditTimeout = 10 * time.Second

// begin opens probes, metrics and the control socket. The returned function closes them, and then the plugins. After an
// error the plugins are already closed.
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

// control opens the socket through which programs of the same user inspect and reload this process. A failure is only
// logged. The returned function closes the socket.
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
		n.o.Log.WarnContext(ctx, "no control socket: plugins reload and plugins list cannot reach this sidecar; use SIGHUP",
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
