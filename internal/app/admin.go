package app

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/preflight"
)

// administer answers administrators from now on, if the user wants that. The function it returns ends that, after the
// requests under way; it may be called again.
func (n *Node) administer(ctx context.Context) (service *admin.Service, finish func() error, err error) {
	c := n.o.Config
	service = n.service()
	if c.Admin.Listen == "" {
		return service, func() error { return nil }, nil
	}
	if c.Queries.TokensFile == "" {
		return nil, nil, problem.New(problem.Usage, fmt.Errorf("nobody could come in on %s: no tokens are given", c.Admin.Listen),
			"make a token for each who may: embedsidecar token create NAME --role admin --tokens-file FILE, and give the file here")
	}
	tokens, err := serve.ReadTokens(c.Queries.TokensFile, n.o.Log)
	if err != nil {
		return nil, nil, problem.New(problem.Usage, err,
			fmt.Sprintf("embedsidecar token create NAME --role admin --tokens-file %s makes one", c.Queries.TokensFile))
	}
	pages, err := n.pages(service)
	if err != nil {
		return nil, nil, err
	}
	server, err := admin.Listen(ctx, admin.Options{
		Listen: c.Admin.Listen, Tokens: tokens, Cert: c.Admin.Cert, Key: c.Admin.Key, ClientCA: c.Admin.ClientCA,
		Service: service, Pages: pages, Observe: n.observer.Request, Log: n.o.Log,
	})
	if err != nil {
		return nil, nil, problem.New(problem.Usage, err)
	}
	if c.Admin.Cert == "" && !loopback.Addr(server.Addr()) {
		n.o.Log.WarnContext(ctx, "tokens of administrators travel unencrypted: give --admin-cert and --admin-key, or have something in front that does",
			"address", server.Addr().String())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is under way gets its answer first
	done := make(chan error, 1)
	go func() { done <- server.Run(serving) }()
	return service, sync.OnceValue(func() error {
		cancel()
		return <-done
	}), nil
}

// check looks at everything that running depends on, as embedsidecar check does: with the embedders that work here, or
// where none does with new ones, since one that was started long ago tells nothing of what is there now.
func (n *Node) check(ctx context.Context, pool *pgxpool.Pool) []check.Finding {
	c := n.o.Config
	if n.Snapshot().Phase == observe.Queries {
		found, err := preflight.Check(ctx, pool, n.source())
		list := make([]check.Finding, 0, len(found)+1)
		for _, f := range found {
			list = append(list, check.Finding{Name: f.Check, Status: f.Status, Detail: f.Detail, Hint: f.Hints})
		}
		if err != nil {
			list = append(list, check.Finding{Name: "check", Status: check.Wrong, Detail: err.Error(), Hint: problem.Hints(err)})
		}
		return list
	}
	loaded, err := lookup.Stored(ctx, pool, c.Slot.Name)
	if err != nil { // whether anything is set up is a finding
		loaded = nil
	}
	specs := lookup.Configured(c, loaded)
	all := slices.Clone(specs)
	for i := range loaded {
		if !slices.ContainsFunc(specs, func(spec pipeline.Spec) bool { return spec.Name == loaded[i].Name }) {
			all = append(all, loaded[i].Spec)
		}
	}
	described := map[string]embed.Description{}
	var list []check.Finding
	told := map[pipeline.ModelName]bool{}
	for _, spec := range all {
		d, err := n.plugins.DescribeOne(ctx, spec)
		if err == nil {
			described[spec.Name] = d
		}
		if key := spec.ModelName(); !told[key] {
			told[key] = true
			f := check.Finding{Name: "embedder " + spec.Plugin, Status: check.OK, Detail: fmt.Sprintf("%s, %d wide", d.Model, d.Dims)}
			if err != nil {
				f.Status, f.Detail, f.Hint = check.Wrong, err.Error(), problem.Hints(err)
			}
			list = append(list, f)
		}
	}
	return append(list, check.Run(ctx, check.Options{
		Pool: pool, ReplicationDSN: c.Database.Stream(), Slot: c.Slot.Name, Publication: c.Publication.Name, Specs: specs,
		Descriptions: described,
	})...)
}
