package admin

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// api is the API being put together.
type api struct {
	*gate.API

	service *Service
}

// get adds a route for whoever may look.
func get[I, O any](a *api, path, id, summary string, answer func(ctx context.Context, in *I) (O, error)) {
	gate.Get(a.API, gate.RoleViewer, http.MethodGet, base+path, id, summary, answer)
}

// post adds a route that has something done, for a role.
func post[I, O any](a *api, role, path, id, summary string, answer func(ctx context.Context, in *I) (O, error),
	more ...func(*huma.Operation),
) {
	gate.Get(a.API, role, http.MethodPost, base+path, id, summary, answer, more...)
}

// of is what is asked of one pipeline with a body, which may be missing, and all what is asked without a pipeline.
type (
	of[T any] struct {
		Name string `path:"name"`
		Body *T     `required:"false"`
	}
	all[T any] struct {
		Body *T `required:"false"`
	}
)
