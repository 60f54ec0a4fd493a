package sidecar

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// What a sidecar says of itself is written when its state changes; the words of an error differ at each try and are
// no change.
func TestNotice_Same(t *testing.T) {
	t.Parallel()
	down := func(detail string) *notice {
		return &notice{stream: health.Streaming, problems: map[int32]health.Problem{1: {
			Code:   health.PluginDown,
			Detail: detail,
		}}}
	}
	for _, c := range []struct {
		a, b          *notice
		states, words bool
	}{
		{down("a"), down("a"), true, true},
		{down("again in 3 s"), down("again in 6 s"), true, false},
		{down("a"), &notice{stream: health.Standby, problems: down("a").problems}, false, false},
		{down("a"), &notice{stream: health.Streaming}, false, false},
		{&notice{stream: health.Stuck, detail: "a"}, &notice{stream: health.Stuck, detail: "b"}, true, false},
		{&notice{stream: health.Making, detail: "a"}, &notice{stream: health.Making}, false, false},
	} {
		if states, words := c.a.same(c.b); states != c.states || words != c.words {
			t.Errorf("%+v and %+v: %t, %t, want %t, %t", c.a, c.b, states, words, c.states, c.words)
		}
	}
}
