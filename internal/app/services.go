package app

import (
	"sync"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
)

// services are those of the embedders, which all databases share.
type services struct {
	config *config.Config

	mu   sync.Mutex
	list map[embed.Embedder]*embed.Service
}

// service is of, or nil where nobody shares.
func (s *services) service() func(embed.Embedder) *embed.Service {
	if s == nil {
		return nil
	}
	return s.of
}

// of returns the service of an embedder: the databases take turns with it.
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
