package admin

import (
	"context"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Plugins returns the plugins of this process with their caches.
func (s *Service) Plugins(ctx context.Context) (control.State, error) {
	if _, err := gate.Everywhere(ctx, gate.RoleViewer); err != nil {
		return control.State{}, err
	}
	now := s.o.Snapshot()
	state := now.Control()
	for i := range state.Plugins {
		state.Plugins[i].Reason = s.o.Redact(state.Plugins[i].Reason)
	}
	return state, nil
}

// Named returns the plugins and models that are available on this machine.
func (s *Service) Named(ctx context.Context) (plugins []registry.Known, folders []models.Info, err error) {
	if _, err := gate.Everywhere(ctx, gate.RoleViewer); err != nil {
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

// Config returns every value of the configuration in force, without passwords.
func (s *Service) Config(ctx context.Context) ([]config.Shown, error) {
	if _, err := gate.Wholly(ctx, gate.RoleAdmin); err != nil {
		return nil, err
	}
	list := s.config().Show(true)
	for i := range list {
		list[i].Value = s.o.Redact(list[i].Value)
	}
	return list, nil
}

// DatabaseState is the state of one of several databases.
type DatabaseState struct {
	Database string `json:"database"`
	State    string `json:"state" enum:"working,quiet,starting,failing,unserved"`
	Slot     string `json:"slot,omitempty"`
	embed.Terms
	Reason string   `json:"reason,omitempty" doc:"Why it does not work, or only partly"`
	Hints  []string `json:"hints,omitempty"`
}

type databaseList struct {
	Databases []DatabaseState `json:"databases"`
}

// OfNone reports whether the Service belongs to none of several databases.
func (s *Service) OfNone() bool { return s.o.Databases != nil && s.o.Name == "" }

// all returns the states of several databases.
func (s *Service) all(ctx context.Context, who gate.Caller) (Status, error) {
	list, err := s.Databases(ctx)
	return Status{
		At: time.Now().UTC(), ReadOnly: s.ReadOnly(), Program: s.program(who), Databases: list,
		Database: observe.Database{Slots: []report.Slot{}, Sidecars: []report.Sidecar{}, Pipelines: []observe.Pipeline{}},
	}, err
}

// Name returns the name of the database, if there are several.
func (s *Service) Name() string { return s.o.Name }

// Databases lists the databases that the caller sees.
func (s *Service) Databases(ctx context.Context) ([]DatabaseState, error) {
	who, err := gate.Asked(ctx, gate.RoleViewer)
	if err != nil || s.o.Databases == nil {
		return []DatabaseState{}, err
	}
	list := slices.DeleteFunc(s.o.Databases(), func(d DatabaseState) bool { return !who.SeesDatabase(d.Database) })
	for i := range list {
		list[i].Reason = s.o.Redact(list[i].Reason)
	}
	return append([]DatabaseState{}, list...), nil
}
