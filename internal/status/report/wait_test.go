package report

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

var done = CaughtUp{Decoded: true}

func TestCaughtUp_SaysForWhomToWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		c        CaughtUp
		yes      bool
		streamer bool // the streamer must act first
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

// The catalog shows changes to tables that are not in the WAL. The streamer stores what it has seen of these with its
// request for a scan, so the catalog is read before the scans.
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
		db := changing{
			memory: memory{installed: []Pipeline{{Name: "docs"}}, news: c.altered, refuse: map[string]error{"catalogue": c.err}},
			then:   c.answers,
		}
		got, err := at(t.Context(), &db, "docs", 0x10)
		if !slices.Equal(db.asked, c.order) || !errors.Is(err, c.err) || err == nil && got.Yes() != c.yes {
			t.Errorf("%s: asked %v, got %+v, %v", name, db.asked, got, err)
		}
	}
}

// changing is an installation whose queue changes with each query.
type changing struct {
	memory

	then []CaughtUp
}

func (c *changing) caughtUp(ctx context.Context, slot string, lsn pglogrepl.LSN) (CaughtUp, bool, error) {
	c.progress, c.then = c.then[0], c.then[1:]
	return c.memory.caughtUp(ctx, slot, lsn)
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

// A single check answers at once if the streamer has reported its position, and otherwise waits for that at most a
// moment.
func TestLook_WaitsForTheStreamerAlone(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		answers []CaughtUp
		err     error
		asks    int
		took    time.Duration // upper limit
		yes     bool
	}{
		"all is done":                  {[]CaughtUp{done}, nil, 1, 0, true},
		"rows are left":                {[]CaughtUp{{Decoded: true, Open: 3}}, nil, 1, 0, false},
		"the streamer was idle":        {[]CaughtUp{{}, {}, done}, nil, 3, Moment / 2, true},
		"the streamer says nothing":    {[]CaughtUp{{Open: 7}}, nil, 0, Moment, false},
		"the database does not answer": {[]CaughtUp{{}}, broken, 1, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, asked := time.Now(), 0
			got, err := look(t.Context(), func() (CaughtUp, error) {
				asked++
				return c.answers[min(asked, len(c.answers))-1], c.err
			}, func() error { return nil })
			if took := time.Since(began); !errors.Is(err, c.err) || got.Yes() != c.yes || took > c.took ||
				c.asks != 0 && asked != c.asks {
				t.Errorf("%s: %+v, %v, asked %d times in %s", name, got, err, asked, took)
			}
		})
	}
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

// A query about a slot without checkpoint or pipelines fails with a hint.
func TestAt_TellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	broken, docs := errors.New("broken"), []Pipeline{{Name: "docs"}}
	for name, c := range map[string]struct {
		m    memory
		want error
		yes  bool // without an error
	}{
		"all is done":               {memory{installed: docs, progress: done}, nil, true},
		"its table was altered":     {memory{installed: docs, progress: done, news: 1}, nil, false},
		"there is no such slot":     {memory{installed: docs, absent: true}, ErrNoSlot, false},
		"nothing is set up":         {memory{progress: done}, ErrNoPipeline, false},
		"the queue cannot be asked": {memory{installed: docs, refuse: map[string]error{"queue": broken}}, broken, false},
		"the catalogue cannot be": {
			memory{installed: docs, progress: done, refuse: map[string]error{"catalogue": broken}}, broken, false,
		},
	} {
		got, err := at(t.Context(), &c.m, "docs", 0x10)
		if !errors.Is(err, c.want) || err == nil && got.Yes() != c.yes {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
		}
	}
}

// A table counts as altered if the catalog differs from what the streamer has stored, or if one of the two is missing.
func TestDiffers_FromWhatWasSeen(t *testing.T) {
	t.Parallel()
	fields := []pgconn.FieldDescription{{Name: "current"}, {Name: "pipeline_id"}, {Name: "known"}}
	for name, c := range map[string]struct {
		values [][]byte
		want   bool
	}{
		"the same":     {[][]byte{[]byte("{a}"), []byte("1"), []byte("{a}")}, false},
		"altered":      {[][]byte{[]byte("{a,b}"), []byte("1"), []byte("{a}")}, true},
		"dropped":      {[][]byte{nil, []byte("1"), []byte("{a}")}, true},
		"not seen yet": {[][]byte{[]byte("{a}"), []byte("1"), nil}, true},
		"neither nor":  {[][]byte{nil, []byte("1"), nil}, false},
	} {
		if got := differs(fields, c.values); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// An idle streamer persists its position for a waiting caller as soon as it reaches the requested LSN.
func TestWaitFor_AsksForThePositionItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory{installed: []Pipeline{{Name: "docs"}}}
		c, err := waitFor(t.Context(), &m, "docs", 0x10)
		if err != nil || !c.Yes() || !slices.Contains(m.asked, "hurry to 0/10") || slices.Contains(m.asked, "hurry") {
			t.Errorf("%+v, %v, asked %v", c, err, m.asked)
		}
		m.progress.Decoded, m.refuse = false, map[string]error{"hurry to 0/10": context.DeadlineExceeded}
		if _, err := waitFor(t.Context(), &m, "docs", 0x10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody could be asked: %v", err)
		}
	})
}
