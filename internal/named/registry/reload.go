package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

// Reloaded is what became of a plugin in a sidecar.
type Reloaded struct {
	Sidecar string `json:"sidecar"`
	Pid     int    `json:"pid"`
	control.Reloaded
}

// Reload has the sidecars of this user on this machine move to the files of plugins as they are now: of these names, or
// all. Where a database is named, as database.Which tells it, those of others are left alone. Where some did not, an
// error that says why comes beside what became of all.
func (c Registry) Reload(ctx context.Context, names []string, which string) ([]Reloaded, error) {
	sidecars, err := c.sidecars(ctx, which)
	if err != nil {
		return nil, err
	}
	list := []Reloaded{}
	var problems, refused []error
	for _, s := range sidecars {
		results, err := s.Reload(ctx, names)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, r := range results {
			list = append(list, Reloaded{s.State.Instance, s.State.Pid, r})
			if r.Detail != "" {
				refused = append(refused, fmt.Errorf("sidecar %s: %s", s.State.Instance, r.Detail))
			}
		}
	}
	problems = append(problems, refused...)
	switch {
	case len(list) == 0 && len(problems) == 0:
		return nil, problem.New(problem.Failed, errors.New("no running sidecar uses that plugin"),
			"embedsidecar plugins list shows what runs")
	case len(problems) > 0:
		return list, problem.New(problem.Failed, errors.Join(problems...), "what ran goes on as it was",
			"another model is another pipeline: a new name and a new destination, or a restart of the sidecar with the model as it was")
	}
	return list, nil
}

// sidecars finds those of this user on this machine: where a database is named, those that work for it.
func (c Registry) sidecars(ctx context.Context, which string) ([]control.Sidecar, error) {
	folder := c.source.Config.ControlFolder()
	sidecars, err := control.Find(ctx, folder)
	if err != nil {
		return nil, err
	}
	if len(sidecars) == 0 {
		return nil, problem.New(problem.Failed, fmt.Errorf("no sidecar of this user runs here (looked in %s)", folder),
			"one of another user, in a container or on another machine reloads at SIGHUP",
			"a sidecar that starts takes the files as they are")
	}
	here := len(sidecars)
	sidecars = slices.DeleteFunc(sidecars, func(s control.Sidecar) bool {
		return which != "" && s.State.Database != which && !slices.Contains(s.State.Databases, which)
	})
	if len(sidecars) == 0 {
		return nil, problem.New(problem.Failed, fmt.Errorf("none of the %s of this user here works for that database", wording.Count(int64(here), "sidecar")),
			"embedsidecar plugins list shows what runs here; one that has not connected yet does not know its database",
			"a sidecar reloads its plugins at SIGHUP")
	}
	return sidecars, nil
}

// Configure has the sidecars of this user on this machine take over their configurations as they are written down now.
func (c Registry) Configure(ctx context.Context, which string) (list []control.Configured, err error) {
	sidecars, err := c.sidecars(ctx, which)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, s := range sidecars {
		done, err := s.Configure(ctx)
		if err != nil {
			problems = append(problems, problem.New(problem.Failed, err))
			continue
		}
		list = append(list, done)
	}
	return list, errors.Join(problems...)
}
