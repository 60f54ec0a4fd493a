package admin

import (
	"context"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// DatabaseState is how one of several databases stands.
type DatabaseState struct {
	Database string   `json:"database"`
	State    string   `json:"state" enum:"working,quiet,starting,failing,unserved"`
	Slot     string   `json:"slot,omitempty"`
	Weight   int      `json:"weight,omitempty" doc:"Its share of the embedders"`
	Reason   string   `json:"reason,omitempty" doc:"Why it does not work, or not all of it"`
	Hints    []string `json:"hints,omitempty"`
}

type databaseList struct {
	Databases []DatabaseState `json:"databases"`
}

// OfNone reports whether the Service is of none of several databases.
func (s *Service) OfNone() bool { return s.o.Databases != nil && s.o.Name == "" }

// all tells how several databases stand.
func (s *Service) all(ctx context.Context, who gate.Caller) (Status, error) {
	list, err := s.Databases(ctx)
	return Status{
		At: time.Now().UTC(), ReadOnly: s.ReadOnly(), Program: s.program(who), Databases: list,
		Database: observe.Database{Slots: []report.Slot{}, Sidecars: []report.Sidecar{}, Pipelines: []observe.Pipeline{}},
	}, err
}

// Name is that of the database, where there are several.
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

// databases is the route of what only a Service of several has.
func (a *api) databases() {
	get(a, "/databases", "databases", "List the databases, where several are served; ?database=NAME on other paths chooses",
		func(ctx context.Context, _ *none) (databaseList, error) {
			list, err := a.service.Databases(ctx)
			return databaseList{list}, err
		})
}
