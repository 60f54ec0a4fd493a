package report

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A drain ends when nothing is left, or when waiting changes nothing: a paused pipeline finishes its running rows, and
// the streamer reads the changes that it has not read.
func TestDrain_EndsWhenNothingIsLeftOrMoves(t *testing.T) {
	t.Parallel()
	errOver := errors.New("over")
	for name, c := range map[string]struct {
		steps   []Left
		asks    int
		drained bool
	}{
		"at once":                   {[]Left{{Decoded: true}}, 1, true},
		"first read, then worked":   {[]Left{{}, {Decoded: true, Rows: 2}, {Decoded: true}}, 3, true},
		"a scan that is not over":   {[]Left{{Decoded: true, Scanning: true}, {Decoded: true}}, 2, true},
		"paused, with nothing left": {[]Left{{Decoded: true, Resting: "paused"}}, 1, true},
		"paused, with rows left":    {[]Left{{Decoded: true, Rows: 3, Resting: "paused"}}, 1, false},
		"paused, with some in work": {[]Left{
			{Decoded: true, Rows: 3, Running: 2, Resting: "paused"}, {Decoded: true, Rows: 1, Resting: "paused"},
		}, 2, false},
		"paused, with changes to be": {[]Left{{Resting: "paused"}, {Decoded: true, Rows: 1, Resting: "paused"}}, 2, false},
		"dead letters do not wait":   {[]Left{{Decoded: true, Failed: 9, Cancelled: 1}}, 1, true},
		"never":                      {[]Left{{Decoded: true, Rows: 1}, {Decoded: true, Rows: 1}}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			asked, told := 0, 0
			list, err := drain(ctx, func() ([]Left, error) {
				asked++
				if asked > len(c.steps) {
					cancel(errOver)
					return nil, ctx.Err()
				}
				return c.steps[asked-1 : asked], nil
			}, func() error { return nil }, func([]Left) { told++ })
			want := error(nil)
			if c.asks > len(c.steps) {
				want = errOver
			}
			if !errors.Is(err, want) || asked != c.asks || told != min(asked, len(c.steps)) {
				t.Errorf("asked %d times, told %d times, %v", asked, told, err)
			}
			if fmt.Sprint(list) != fmt.Sprint(c.steps[len(c.steps)-1:]) || list[0].Drained() != c.drained {
				t.Errorf("it ends with %+v", list)
			}
		})
	}
}
