package embed

import "context"

// Share identifies one of several users of an embedder. Each share gets calls in proportion to its weight, however many
// texts the others have.
type Share struct {
	Name string
	Terms
}

// Terms are the terms of a share. They are settings of a database, and status shows them.
type Terms struct {
	Weight int `json:"weight,omitempty" doc:"Its share of the embedders"`
}

type shareKey struct{}

// WithShare returns a context whose texts belong to a share.
func WithShare(ctx context.Context, s Share) context.Context {
	return context.WithValue(ctx, shareKey{}, s)
}

// shareOf returns the share of a context; the zero Share if it has none.
func shareOf(ctx context.Context) Share {
	share, _ := ctx.Value(shareKey{}).(Share)
	return share
}
