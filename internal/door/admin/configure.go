package admin

import (
	"context"
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

// Plan tells what the configuration would change as it is written down now.
func (s *Service) Plan(ctx context.Context) (control.Configured, error) {
	if _, err := gate.Wholly(ctx, gate.RoleAdmin); err != nil {
		return control.Configured{}, err
	}
	if s.o.Plan == nil {
		return control.Configured{}, notConfigurable()
	}
	return s.o.Plan(ctx)
}

// Configure takes over the configuration as it is written down now: reload, or apply, which is what the audit says.
func (s *Service) Configure(ctx context.Context, action string) (control.Configured, error) {
	who, err := gate.Wholly(ctx, gate.RoleAdmin)
	if err == nil {
		err = s.mayChange(false)
	}
	if err != nil {
		return control.Configured{}, err
	}
	if s.o.Configure == nil {
		return control.Configured{}, notConfigurable()
	}
	return s.o.Configure(ctx, action, who.SaidBy())
}

func notConfigurable() error {
	return gate.Refuse(http.StatusConflict, "no_sidecar", "this program runs no pipelines: nothing is configured here",
		"embedsidecar run --admin-listen answers this")
}
