package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/dashboard"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/compare"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/preflight"
)

// NewDashboard makes a Node that shows the dashboard to one user and does nothing else. Dashboard runs it.
func NewDashboard(o Options) *Node { return newNode(o, observe.Queries, true) }

// Dashboard serves the dashboard and its API on a local address until ctx ends. It admits one user, with a token made
// for this call. told gets the URL with the token in its fragment, which browsers do not send.
func (n *Node) Dashboard(ctx context.Context, address, person string, told func(url string) error) (err error) {
	defer func() { err = errors.Join(err, n.plugins.Close()) }()
	if n.one == nil {
		return problem.New(problem.Usage, errors.New("several databases are configured: choose one"), "--database NAME")
	}
	pool, err := n.one.open.Pool(ctx, connection.Few)
	if err != nil {
		return err
	}
	defer pool.Close()
	service := n.one.service("", nil, n)
	service.Follow(pool)
	pages, err := n.pages(service)
	if err != nil {
		return err
	}
	secret := rand.Text()
	server, err := admin.Listen(ctx, service, gate.Options{
		Listen: address, Tokens: gate.OneToken(person, gate.RoleAdmin, secret), Pages: pages,
		Observe: n.observer.Request, Log: n.o.Log,
	})
	if err != nil {
		return problem.New(problem.Usage, err)
	}
	if !loopback.Addr(server.Addr()) {
		return errors.Join(problem.New(problem.Usage,
			fmt.Errorf("%s is not a loopback address: this dashboard has one user and listens on loopback only", server.Addr()),
			"to serve other users: embedsidecar run --admin-listen, with tokens"), server.Close())
	}
	if err := told(fmt.Sprintf("http://%s%s/login#token=%s", server.Addr(), n.o.Config.Admin.BasePath, secret)); err != nil {
		return errors.Join(err, server.Close())
	}
	return server.Run(ctx)
}

// service makes the admin service of one database.
func (n *Database) service(name string, databases func() []admin.DatabaseState, of *Node) *admin.Service {
	o := of.serviceOptions()
	o.Config, o.Log, o.Name, o.Databases, o.Check = n.config(), n.o.Log, name, databases, n.check
	o.Snapshot, o.PlanModel = n.source.Snapshot, n.planModel
	o.Embed, o.Score = n.backend.Embed, n.backend.Score
	o.Registered = func(ctx context.Context) ([]registry.Known, error) { return registry.Of(n.embedders()).List(ctx) }
	o.Folders = func() []models.Info { return folders.Of(n.embedders()).List() }
	if n.o.Reread != nil {
		o.Plan, o.Configure = n.Plan, func(ctx context.Context, action, by string) (control.Configured, error) {
			return n.Configure(ctx, action, by), ctx.Err()
		}
	}
	return admin.NewService(o)
}

// serviceOptions returns the options that do not depend on a database.
func (n *Node) serviceOptions() admin.ServiceOptions {
	source := n.o.source()
	return admin.ServiceOptions{
		Config: n.o.Config, Redact: n.o.Redact, Log: n.o.Log, Snapshot: n.Snapshot, Reload: n.Reload,
		CompareModel: func(ctx context.Context, pool *pgxpool.Pool, name string, questions []compare.Question,
			access *search.Access,
		) (compare.Result, error) {
			return compareModel(ctx, pool, n.plugins, name, questions, access)
		},
		Registered: registry.Of(source).List, Folders: folders.Of(source).List,
	}
}

func (n *Node) pages(service *admin.Service) (*dashboard.Dashboard, error) {
	return dashboard.New(dashboard.Options{
		Service: service, Log: n.o.Log, Version: n.Snapshot().Version, Base: n.o.Config.Admin.BasePath,
	})
}

// check runs the checks of embedsidecar check with the embedders in use. A process that only answers queries starts new
// ones, because an embedder that started long ago does not show what is installed now.
func (n *Database) check(ctx context.Context, pool *pgxpool.Pool) []check.Finding {
	if n.source.Snapshot().Phase != observe.Queries {
		return preflight.With(ctx, pool, n.config(), n.plugins)
	}
	list, err := preflight.Check(ctx, pool, n.embedders())
	if err != nil {
		list = append(list, check.Finding{Name: "check", Status: check.Wrong, Detail: database.Words(err), Hint: problem.Hints(err)})
	}
	return list
}
