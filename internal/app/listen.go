package app

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// listener answers over HTTP.
type listener interface {
	Addr() net.Addr
	Run(ctx context.Context) error
}

// answer has a listener answer from now on. The function it returns ends that, after the requests under way; it may be
// called again.
func (n *Node) answer(ctx context.Context, l listener, protected bool, flags string) (finish func() error) {
	if !protected && !loopback.Addr(l.Addr()) {
		n.o.Log.WarnContext(ctx, "tokens and texts travel unencrypted: give "+flags+", or have something in front that does",
			"address", l.Addr().String())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is under way gets its answer first
	done := make(chan error, 1)
	go func() { done <- l.Run(serving) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// queries answers queries from now on, on an address.
func (n *Node) queries(ctx context.Context, address string) (finish func() error, err error) {
	q := n.o.Config.Queries
	o := serve.Options{
		Listen: address, Cert: q.Cert, Key: q.Key, Backend: n.backend, Observe: n.observer.Request, Log: n.o.Log,
		Limits: serve.Limits{Search: q.SearchTimeout, Stop: n.o.Config.Workers.DrainTimeout},
	}
	switch {
	case q.TokensFile != "":
		if o.Tokens, err = serve.ReadTokens(q.TokensFile, n.o.Log); err != nil {
			return nil, problem.New(problem.Usage, err)
		}
	case !q.NoAuth:
		return nil, problem.New(problem.Usage, fmt.Errorf("nobody may query on %s: neither tokens nor --no-auth are given", address),
			"make a token for each who may: embedsidecar token create NAME --tokens-file FILE, and give the file here",
			"or let everybody on this machine: --no-auth, with a loopback address")
	}
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return nil, problem.New(problem.Usage, err, problem.Hints(err)...)
	}
	return n.answer(ctx, server, o.Tokens == nil || q.Cert != "", "--http-cert and --http-key"), nil
}

// administer answers administrators from now on, if the user wants that.
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
	return service, n.answer(ctx, server, c.Admin.Cert != "", "--admin-cert and --admin-key"), nil
}
