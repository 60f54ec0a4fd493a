package report

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var done = CaughtUp{Decoded: true}

func TestCaughtUp_SaysForWhomToWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		c        CaughtUp
		yes      bool
		streamer bool // it must act first
	}{
		"all is done":                   {done, true, false},
		"what failed is not waited for": {CaughtUp{Decoded: true, Failed: 3, Resting: []string{"docs"}}, true, false},
		"not decoded":                   {CaughtUp{}, false, true},
		"open tasks":                    {CaughtUp{Decoded: true, Open: 1}, false, false},
		"a scan":                        {CaughtUp{Decoded: true, Scans: 1}, false, false},
		"an altered table":              {CaughtUp{Decoded: true, Altered: 1}, false, true},
		"a pipeline nobody routes":      {CaughtUp{Decoded: true, Unrouted: []string{"docs"}}, false, true},
	} {
		if c.c.Yes() != c.yes || c.c.streamersTurn() != c.streamer {
			t.Errorf("%s: yes %t, the streamer's turn %t", name, c.c.Yes(), c.c.streamersTurn())
		}
	}
}

// What the WAL does not tell of a table the catalogue does, and the streamer stores what it has seen of that with its
// request for a scan: so the catalogue comes first, and then the scans.
func TestAt_AsksTheQueueAfterTheCatalogue(t *testing.T) {
	t.Parallel()
	broken, thrice := errors.New("broken"), []string{"queue", "catalogue", "queue"}
	for name, c := range map[string]struct {
		answers []CaughtUp
		altered int64
		err     error
		order   []string
		yes     bool
	}{
		"all is done":    {[]CaughtUp{done, done}, 0, nil, thrice, true},
		"work is left":   {[]CaughtUp{{Decoded: true, Open: 1}}, 0, nil, []string{"queue"}, false},
		"altered":        {[]CaughtUp{done, done}, 2, nil, thrice, false},
		"seen meanwhile": {[]CaughtUp{done, {Decoded: true, Scans: 1}}, 0, nil, thrice, false},
		"no catalogue":   {[]CaughtUp{done}, 0, broken, []string{"queue", "catalogue"}, false},
	} {
		var order []string
		got, err := ordered(func() (CaughtUp, error) {
			answer := c.answers[len(order)/2]
			order = append(order, "queue")
			return answer, nil
		}, func() (int64, error) {
			order = append(order, "catalogue")
			return c.altered, c.err
		})
		if !slices.Equal(order, c.order) || !errors.Is(err, c.err) || err == nil && got.Yes() != c.yes {
			t.Errorf("%s: asked %v, got %+v, %v", name, order, got, err)
		}
	}
	if _, err := ordered(func() (CaughtUp, error) { return done, broken }, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestWait_UntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, asked, hurried := time.Now(), 0, 0
		c, err := wait(t.Context(), func() (CaughtUp, error) {
			asked++
			return CaughtUp{Decoded: time.Since(began) > 3*time.Second}, nil
		}, func() error {
			hurried++
			return nil
		})
		if err != nil || !c.Yes() || asked > 20 || hurried < 2 || hurried > 4 {
			t.Errorf("%+v, %v after %d questions, of which %d made the streamer hurry", c, err, asked, hurried)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWait_LeavesAStreamerAloneThatHasDoneItsPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		_, err := wait(t.Context(), func() (CaughtUp, error) {
			asked++
			return CaughtUp{Decoded: true, Open: int64(20 - asked)}, nil
		}, func() error { return errors.New("nobody should hurry") })
		if err != nil || asked != 20 {
			t.Errorf("%v after %d questions", err, asked)
		}
	})
}

func TestWait_EndsWithWhatWentWrong(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		quiet := func() error { return nil }
		_, err := wait(t.Context(), func() (CaughtUp, error) { return CaughtUp{}, broken }, quiet)
		if !errors.Is(err, broken) {
			t.Errorf("it cannot ask: %v", err)
		}
		if _, err := wait(t.Context(), func() (CaughtUp, error) { return CaughtUp{}, nil },
			func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("it cannot make the streamer hurry: %v", err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, broken)
		defer cancel()
		c, err := wait(ctx, func() (CaughtUp, error) { return CaughtUp{Open: 5}, ctx.Err() }, ctx.Err)
		if !errors.Is(err, broken) || c.Open != 5 {
			t.Errorf("its time is over: %+v, %v, want how far it is, and why it ends", c, err)
		}
	})
}
