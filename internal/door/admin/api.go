package admin

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// api is the API being put together.
type api struct {
	*gate.API

	service *Service
}

// on adds a route that takes a role.
func on[I, O any](a *api, role, method, path, id, summary string, answer func(ctx context.Context, in *I) (*O, error),
	more ...func(*huma.Operation),
) {
	gate.On(a.API, role, method, path, id, summary, answer, more...)
}

type body[T any] = gate.Answer[T]

// answers makes the answer of a route of what a method of the Service returned.
func answers[T any](value T, err error) (*body[T], error) { return &body[T]{Body: value}, err }
