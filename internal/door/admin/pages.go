package admin

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// What pages show beside what the API answers.

// ReadOnly reports whether nothing can be changed here, no matter who asks.
func (s *Service) ReadOnly() bool { return s.config().Admin.ReadOnly }

// MayChange returns why who asks may change nothing here, or nil.
func (s *Service) MayChange(ctx context.Context) error {
	if _, err := gate.Asked(ctx, gate.RoleOperator); err != nil {
		return err
	}
	return s.writable(false)
}

// Defined returns how a pipeline is defined, as far as its table can be looked at now; nil: it cannot.
func (s *Service) Defined(ctx context.Context, name string) (*pipeline.Pipeline, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleViewer, []string{name})
	if err != nil {
		return nil, err
	}
	found, err := lookup.Named(ctx, pool, names)
	if len(found) == 0 || lookup.Find(found, names[0]) < 0 {
		return nil, err
	}
	return &found[0], nil
}

// Named returns the plugins and models that can be named on this machine.
func (s *Service) Named(ctx context.Context) (plugins []registry.Known, folders []models.Info, err error) {
	if _, err := gate.Wholly(ctx, gate.RoleViewer); err != nil {
		return nil, nil, err
	}
	if s.o.Registered != nil {
		if plugins, err = s.o.Registered(ctx); err != nil {
			return nil, nil, err
		}
	}
	if s.o.Folders != nil {
		folders = s.o.Folders()
	}
	return plugins, folders, nil
}
