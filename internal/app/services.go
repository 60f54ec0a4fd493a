package app

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
)

// services are the embedder services that all databases share.
type services struct {
	config *config.Config

	mu    sync.Mutex
	list  map[embed.Embedder]*embed.Service
	limit *limit.Limit // of rows and tokens a second
}

func newServices(c *config.Config) *services { return &services{config: c, limit: limitOf(c)} }

func (s *services) use(c *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Limits != s.config.Limits {
		s.limit = limitOf(c)
	}
	s.config = c
}

// limitOf returns the limit that all databases share, or without sharing the one of c.
func (s *services) limitOf(c *config.Config) *limit.Limit {
	if s == nil {
		return limitOf(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// service returns of, or nil without sharing.
func (s *services) service() func(embed.Embedder) *embed.Service {
	if s == nil {
		return nil
	}
	return s.of
}

// of returns the service of an embedder. The databases take turns with it.
func (s *services) of(e embed.Embedder) *embed.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = map[embed.Embedder]*embed.Service{}
	}
	if s.list[e] == nil {
		s.list[e] = embed.NewService(e, s.config.Workers.CacheBytes).ShareOut(connection.Loops(s.config))
	}
	return s.list[e]
}

// keep forgets the services of all embedders but those in use. A service holds a cache.
func (s *services) keep(used []*embedders.Hosted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.list, func(e embed.Embedder, _ *embed.Service) bool {
		h, _ := e.(*embedders.Hosted)
		if m, measured := e.(*embedders.Measured); measured {
			h = m.Hosted
		}
		return !slices.Contains(used, h)
	})
}

// limitOf returns the limit of rows and tokens a second; nil: none.
func limitOf(c *config.Config) *limit.Limit {
	return limit.New(limit.Rates{Rows: float64(c.Limits.Rows), Tokens: float64(c.Limits.Tokens)},
		limit.Rates{Rows: float64(c.Limits.BackfillRows), Tokens: float64(c.Limits.BackfillTokens)}, time.Now())
}
