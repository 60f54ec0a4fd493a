package report

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

const active = string(pipeline.Active)

// P10: an estimate of no rows is no proof that all is covered, and no coverage is above one.
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

// A large ledger is not read again and again: not within a minute, nor more than a hundredth of the time.
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

// While no sidecar runs, what is stored of a pipeline may be old; what nobody may look at is no news.
func TestRefresh_TakesTheCatalogueWhereNobodyElseDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		loaded  pipeline.Pipeline
		running bool
		want    string
	}{
		"nobody runs": {
			pipeline.Pipeline{ID: 7, Status: pipeline.Missing, Detail: "gone"},
			false, string(pipeline.Missing),
		},
		"a sidecar runs":   {pipeline.Pipeline{ID: 7, Status: pipeline.Missing}, true, active},
		"it is locked":     {pipeline.Pipeline{ID: 7, Status: pipeline.Locked}, false, active},
		"another pipeline": {pipeline.Pipeline{ID: 8, Status: pipeline.Missing}, false, active},
	} {
		p := Pipeline{ID: 7, Status: active}
		Options{Loaded: []pipeline.Pipeline{c.loaded}}.refresh(&p, c.running)
		if p.Status != c.want || p.Status != active && p.Detail != c.loaded.Detail {
			t.Errorf("%s: %q (%s), want %q", name, p.Status, p.Detail, c.want)
		}
	}
}

func TestChangesHands_WhileASlotWaitsForASidecarThatRuns(t *testing.T) {
	t.Parallel()
	free, streamed := Slot{Name: "docs", Exists: true}, []Sidecar{{Slot: "docs", Stream: health.Streaming}}
	for name, c := range map[string]struct {
		change   func(s *Slot)
		sidecars []Sidecar
		want     bool
	}{
		"somebody streams, and it is not held": {func(*Slot) {}, streamed, true},
		"somebody stands by":                   {func(*Slot) {}, []Sidecar{{Slot: "docs", Stream: health.Standby}}, true},
		"somebody begins":                      {func(*Slot) {}, []Sidecar{{Slot: "docs", Stream: health.Starting}}, true},
		"nobody runs":                          {func(*Slot) {}, nil, false},
		"only of another slot":                 {func(*Slot) {}, []Sidecar{{Slot: "other", Stream: health.Streaming}}, false},
		"only one that does not stream":        {func(*Slot) {}, []Sidecar{{Slot: "docs", Stream: health.NoStream}}, false},
		"one is stuck": {
			func(*Slot) {}, []Sidecar{{Slot: "docs", Stream: health.Standby}, {Slot: "docs", Stream: health.Stuck}}, false,
		},
		"it is held":       {func(s *Slot) { s.Active = true }, streamed, false},
		"it is lost":       {func(s *Slot) { s.WALStatus = "lost" }, streamed, false},
		"there is no slot": {func(s *Slot) { s.Exists = false }, streamed, false},
	} {
		slot := free
		c.change(&slot)
		if got := (&Status{Slots: []Slot{slot}, Sidecars: c.sidecars}).changesHands(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// A slot that is nobody's for a moment is not told of as if it were for good; one that stays so is.
func TestSettled_WaitsForASlotToBeTakenOver(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		o     Options
		after time.Duration // it is held
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
			st, err := c.o.settled(t.Context(), func() (Status, error) {
				return Status{
					Slots:    []Slot{{Name: "docs", Exists: true, Active: time.Since(began) >= c.after}},
					Sidecars: []Sidecar{{Slot: "docs", Stream: health.Streaming}},
				}, c.err
			})
			if took := time.Since(began); !errors.Is(err, c.err) || took < c.least || took > c.most ||
				!st.streams("docs") || st.streams("other") {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}

// The state of a pipeline comes of its own slot and of the sidecars that can work it.
func TestJudge_TakesWhatIsOfThePipeline(t *testing.T) {
	t.Parallel()
	age := 3.0
	st := Status{
		Slots: []Slot{
			{Name: "other", Exists: true, PublicationExists: true, WALStatus: "lost"},
			{
				Name: "docs", Exists: true, Active: true, PublicationExists: true, Holder: "embedsidecar/one",
				Blockers: []database.Blocker{{PID: 9, Role: "me", Database: "docs", AgeSeconds: &age}},
			},
		},
		Sidecars: []Sidecar{
			{Slot: "other", Instance: "far", Stream: health.Streaming},
			{Slot: "docs", Instance: "one", Stream: health.Streaming, Problems: map[int32]health.Problem{8: {Detail: "no"}}},
			{Slot: "", Instance: "hand", Stream: health.NoStream},
		},
	}
	p := Pipeline{
		ID: 7, Name: "docs", Slot: "docs", Schema: "public", Table: "Docs", Status: active, Enabled: true, Rows: 100,
		ScanPhase: "rows", ScanSeen: 40, ScanRate: 10, Pending: 1, Running: 2, Retrying: 3,
		ScanBlockers: []database.Blocker{{PID: 5, Role: "me", Database: "docs"}},
	}
	f := st.facts(&p)
	if f.Slot.Name != "docs" || !f.Slot.Active || f.Slot.Lost || len(f.Slot.Blockers) != 1 || len(f.Scan.Blockers) != 1 {
		t.Errorf("its slot is %+v", f.Slot)
	}
	if len(f.Sidecars) != 2 || f.Sidecars[0].Name != "one" || f.Sidecars[1].Name != "hand" {
		t.Errorf("its sidecars are %+v", f.Sidecars)
	}
	if f.Table != `"public"."Docs"` || f.Open != 6 || f.Paused {
		t.Errorf("facts %+v", f)
	}
	st.judge(&p)
	if p.State != health.Comparing || p.ScanExpected != 100 || p.ScanLeft < 5 || p.ScanLeft > 7 ||
		p.Health().Reason != p.Reason || p.Health().Code != p.State {
		t.Errorf("state %s (%s), expected %d, %g s left", p.State, p.Reason, p.ScanExpected, p.ScanLeft)
	}
	p.Enabled = false
	if st.judge(&p); p.State != health.Paused {
		t.Errorf("paused: %s", p.State)
	}
	p.Slot = "other"
	if st.judge(&p); p.State != health.SlotLost {
		t.Errorf("of a slot that is lost: %s", p.State)
	}
}
