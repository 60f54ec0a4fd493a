package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
)

// Check is the outcome of one check.
type Check struct {
	Check  string       `json:"check"`
	Status check.Status `json:"status" enum:"ok,warn,error"`
	Detail string       `json:"detail"`
	Hints  []string     `json:"hints,omitempty"`
}

// Checks tells what running depends on, and whether it is so.
func (s *Service) Checks(ctx context.Context) ([]Check, error) {
	_, pool, err := s.whole(ctx, gate.RoleViewer)
	if err != nil {
		return nil, err
	}
	return s.check(ctx, pool)
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
