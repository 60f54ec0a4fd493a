package admin

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// Check is the outcome of one check.
type Check struct {
	Check  string       `json:"check"`
	Status check.Status `json:"status" enum:"ok,warn,error"`
	Detail string       `json:"detail"`
	Hints  []string     `json:"hints,omitempty"`
}

// Checks tells what running depends on, and whether it is so. What sidecars say of their embedders counts more than
// what an embedder of this process says.
func (s *Service) Checks(ctx context.Context) ([]Check, error) {
	if _, err := gate.Wholly(ctx, gate.RoleViewer); err != nil {
		return nil, err
	}
	pool, err := s.database()
	if err != nil {
		return nil, err
	}
	list, err := s.check(ctx, pool)
	if err != nil {
		return nil, err
	}
	now, _, err := s.look(ctx, pool)
	if err != nil {
		return list, nil //nolint:nilerr // nothing is set up: a finding says so
	}
	return ofSidecars(list, now.Pipelines), nil
}

// ofSidecars adds what keeps sidecars from pipelines. An embedder that can be had here is not ok while that of the
// sidecars is not.
func ofSidecars(list []Check, pipelines []observe.Pipeline) []Check {
	list = slices.Clone(list)
	for i := range pipelines {
		p := &pipelines[i]
		if !p.State.OfEmbedder() {
			continue
		}
		list = append(list, Check{
			Check: "pipeline " + p.Name + " in its sidecar", Status: check.Wrong, Detail: p.State.Word() + ": " + p.Reason,
			Hints: p.Hints,
		})
		for k := range list {
			if list[k].Check == "embedder "+p.Plugin && list[k].Status == check.OK {
				list[k].Status = check.Wrong
				list[k].Detail += ", in a process of this program; not in the sidecar of " + p.Name
			}
		}
	}
	return list
}

// check looks at everything. Those who ask within ten seconds get the same answer.
func (s *Service) check(ctx context.Context, pool *pgxpool.Pool) ([]Check, error) {
	if err := s.checking.take(ctx); err != nil {
		return nil, err
	}
	defer s.checking.giveBack()
	if time.Since(s.checkedAt) < checksAge {
		return s.checked, nil
	}
	list := []Check{}
	for _, f := range s.o.Check(ctx, pool) {
		c := Check{Check: f.Name, Status: f.Status, Detail: s.o.Redact(f.Detail)}
		for _, hint := range f.Hint {
			c.Hints = append(c.Hints, s.o.Redact(hint))
		}
		list = append(list, c)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.checked, s.checkedAt = list, time.Now()
	return list, nil
}
