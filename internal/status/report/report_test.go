package report

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

const active = string(pipeline.Active)

// P10: an estimate of no rows does not prove full coverage, and no coverage exceeds 1.
func TestP10_CoverageIsMeasured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p    Pipeline
		want float64
	}{
		"half":                             {Pipeline{Rows: 10, Known: 5, Status: active}, 0.5},
		"all":                              {Pipeline{Rows: 10, Known: 10, Status: active}, 1},
		"more than the estimate":           {Pipeline{Rows: 10, Known: 12, Status: active}, 1},
		"an empty table":                   {Pipeline{Status: active, looked: true}, 1},
		"a table at which nobody can look": {Pipeline{Status: string(pipeline.Missing)}, 0},
		"one of which much is known":       {Pipeline{Rows: 4, Known: 1, Status: string(pipeline.Missing)}, 0.25},
	} {
		if got := c.p.covered(); got == nil || *got != c.want {
			t.Errorf("%s: %v, want %g", name, got, c.want)
		}
	}
}

// A large ledger is not read repeatedly: not within a minute, and not for more than a hundredth of the time.
func TestCounts_RemembersForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, takes := 0, time.Millisecond
		var failing error
		count := func() (int64, error) {
			asked++
			<-time.After(takes)
			return int64(asked), failing
		}
		c, p := &Counts{}, &Pipeline{ID: 7, Generation: 1}
		known := func(want int64, why string) {
			t.Helper()
			if got, err := c.known(p, count); err != nil || got != want {
				t.Errorf("%s: %d, %v, want %d", why, got, err, want)
			}
		}
		known(1, "the first")
		known(1, "at once")
		p.Generation = 2
		known(2, "another generation")
		<-time.After(countsAge)
		known(3, "after a minute")
		takes = time.Minute
		<-time.After(countsAge)
		known(4, "after another")
		<-time.After(countsShare * time.Minute / 2)
		known(4, "when it takes long")
		<-time.After(countsShare * time.Minute)
		failing = errors.New("no")
		if _, err := c.known(p, count); !errors.Is(err, failing) {
			t.Errorf("got %v", err)
		}
		failing = nil
		known(6, "after one that failed")
		var none *Counts
		if got, err := none.known(p, count); err != nil || got != 7 {
			t.Errorf("nobody remembers: %d, %v", got, err)
		}
	})
}

func TestCount_AnEstimateSaysThatItIsOne(t *testing.T) {
	t.Parallel()
	p := Pipeline{Rows: 900, RowsEstimated: true}
	if p.counted(1001, 1000); p.Rows != 1001 || !p.RowsEstimated {
		t.Errorf("more than were to be counted: %+v", p)
	}
	p.Rows = 5000
	if p.counted(1001, 1000); p.Rows != 5000 {
		t.Errorf("more than were to be counted, and a larger estimate: %d", p.Rows)
	}
	if p.counted(3, 1000); p.Rows != 3 || p.RowsEstimated {
		t.Errorf("counted: %+v", p)
	}
	for text, want := range map[string]int64{
		`[{"Plan": {"Node Type": "Seq Scan", "Plan Rows": 1234}}]`: 1234, `[]`: -1, `x`: -1,
	} {
		if rows, ok := planned(text); ok != (want >= 0) || ok && rows != want {
			t.Errorf("planned(%s) = %d, %t", text, rows, ok)
		}
	}
}

// A pipeline that the role may not look at keeps its stored status.
func TestFound_LeavesOutWhatIsLocked(t *testing.T) {
	t.Parallel()
	got := Options{Loaded: []pipeline.Pipeline{
		{ID: 7, Status: pipeline.Missing, Detail: "gone"}, {ID: 8, Status: pipeline.Locked},
	}}.found()
	if len(got) != 1 || got[7] != (Found{pipeline.Missing, "gone"}) {
		t.Errorf("found %+v", got)
	}
}

// A slot that is inactive for a moment is not reported as inactive; one that stays so is.
func TestSettled_WaitsForASlotToBeTakenOver(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		o     Options
		after time.Duration // until a sidecar takes it over
		err   error
		least time.Duration
		most  time.Duration
	}{
		"held":            {Options{}, 0, nil, 0, 0},
		"held soon":       {Options{}, time.Second, nil, time.Second, 1200 * time.Millisecond},
		"never held":      {Options{}, time.Hour, nil, takeOver, takeOver + time.Second},
		"nobody waits":    {Options{AtOnce: true}, time.Hour, nil, 0, 0},
		"nobody can look": {Options{}, time.Hour, broken, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := c.o.settled(t.Context(), func(context.Context) ([]Slot, error) {
				return []Slot{{Name: "docs", ChangesHands: time.Since(began) < c.after}}, c.err
			})
			if took := time.Since(began); !errors.Is(err, c.err) || took < c.least || took > c.most {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}
