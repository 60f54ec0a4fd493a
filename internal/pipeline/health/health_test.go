package health_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

var update = flag.Bool("update", false, "rewrite the table of docs/states.md")

// whole is a pipeline with nothing to do.
func whole(change func(*health.Facts)) health.Facts {
	f := health.Facts{
		Name: "docs", ID: 7, Status: "active", Table: `"public"."docs"`,
		Slot: health.Slot{
			Name: "s", Publication: "p", Exists: true, Active: true, Published: true,
			Holder: "embedsidecar/a",
		},
		Sidecars: []health.Sidecar{{Name: "a", Stream: health.Streaming}},
		Scan:     health.Scan{Phase: "done"},
	}
	change(&f)
	return f
}

func troubled(code health.Code) func(*health.Facts) {
	return func(f *health.Facts) {
		f.Sidecars[0].Problems = map[int32]health.Problem{7: {Code: code, Detail: "because"}}
	}
}

// states are what differs from a pipeline with nothing to do, with the state that it makes and words of the reason.
var states = []struct {
	name   string
	change func(*health.Facts)
	code   health.Code
	words  string
}{
	{"nothing to do", func(*health.Facts) {}, health.UpToDate, ""},
	{
		"the table is gone", func(f *health.Facts) { f.Status, f.Detail, f.Paused = "missing", "table docs is gone", true },
		health.Missing, "table docs is gone",
	},
	{
		"a column is gone", func(f *health.Facts) { f.Status, f.Detail = "misconfigured", "column body is gone" },
		health.Misconfigured, "column body is gone",
	},
	{
		"a status of a newer program", func(f *health.Facts) { f.Status, f.Detail = "odd", "why" }, health.Misconfigured,
		"odd: why",
	},
	{
		"left the publication", func(f *health.Facts) { f.Status, f.Detail = "unpublished", "not in it" },
		health.Unpublished, "not in it",
	},
	{"no publication", func(f *health.Facts) { f.Slot.Published = false }, health.Unpublished, `"p"`},
	{
		"another table has its name", func(f *health.Facts) { f.ReplacedBy, f.Table = "public.docs", "public.old" },
		health.Replaced, "public.old",
	},
	{
		"the slot waits", func(f *health.Facts) { f.Slot.Making, f.Slot.Blockers = true, []string{"pid 4711"} },
		health.SlotWaiting, "pid 4711",
	},
	{
		"a sidecar makes the slot", func(f *health.Facts) { f.Slot.Exists, f.Sidecars[0].Stream = false, health.Making },
		health.SlotWaiting, "transactions that are open",
	},
	{"no slot", func(f *health.Facts) { f.Slot.Exists, f.Slot.Active = false, false }, health.SlotLost, "slot s is gone"},
	{"lost slot", func(f *health.Facts) { f.Slot.Lost = true }, health.SlotLost, "removed WAL"},
	{"paused", func(f *health.Facts) { f.Paused, f.Open = true, 3 }, health.Paused, "3 rows waiting"},
	{"outside of its hours", func(f *health.Facts) {
		f.Closed, f.Active, f.Open, f.Sidecars = true, "22:00-06:00 UTC", 3, nil
	}, health.OutsideHours, "outside of its hours (22:00-06:00 UTC): changes are queued, nothing is embedded (3 rows waiting)"},
	{"when somebody asks", func(f *health.Facts) { f.Closed, f.Active = true, "manual" }, health.OutsideHours, "resume docs --for 1h"},
	{"no sidecar at all, and a retrying row", func(f *health.Facts) {
		f.Sidecars, f.Slot.Active, f.Open, f.Retrying = nil, false, 1, 1
	}, health.NoSidecar, "1 row waiting"},
	{
		"somebody else holds the slot", func(f *health.Facts) { f.Sidecars, f.Slot.Holder = nil, "pg_recvlogical" },
		health.StandbyOnly, "pg_recvlogical",
	},
	{
		"all stand by", func(f *health.Facts) { f.Sidecars[0].Stream, f.Slot.Holder = health.Standby, "pg_recvlogical" },
		health.StandbyOnly, "pg_recvlogical",
	},
	{
		"all stand by for nobody", func(f *health.Facts) { f.Sidecars[0].Stream, f.Slot.Active = health.Standby, false },
		health.NoSidecar, "no sidecar streams",
	},
	{
		"stuck", func(f *health.Facts) { f.Sidecars[0].Stream, f.Sidecars[0].Detail = health.Stuck, "wedged" },
		health.StreamStuck, "a cannot stream wedged",
	},
	{
		"says that it streams, and does not", func(f *health.Facts) { f.Slot.Active = false }, health.StreamStuck,
		"a runs, and nobody reads slot s",
	},
	{"starts, and goes on starting", func(f *health.Facts) {
		f.Sidecars[0].Stream, f.Slot.Active = health.Starting, false
	}, health.StreamStuck, "nobody reads slot s"},
	{
		"starts while another one ends", func(f *health.Facts) { f.Sidecars[0].Stream = health.Starting }, health.UpToDate,
		"",
	},
	{"stuck, while another one streams", func(f *health.Facts) {
		f.Sidecars = append(f.Sidecars, health.Sidecar{Name: "b", Stream: health.Stuck, Detail: "wedged"})
	}, health.UpToDate, ""},
	{"switched off", troubled(health.Disabled), health.Disabled, "because"},
	{"unknown plugin", troubled(health.PluginUnknown), health.PluginUnknown, "because"},
	{"plugin gone", troubled(health.PluginDown), health.PluginDown, "because"},
	{"another model", troubled(health.OtherModel), health.OtherModel, "because"},
	{"all texts fail", troubled(health.Failing), health.Failing, "embedsidecar tasks list --state failed docs"},
	{"a problem of a newer program", troubled("odd"), health.Misconfigured, "because"},
	{"one of two can work", func(f *health.Facts) {
		troubled(health.PluginDown)(f)
		f.Sidecars = append(f.Sidecars, health.Sidecar{Name: "b", Stream: health.Standby})
	}, health.UpToDate, ""},
	{"neither can, for different reasons", func(f *health.Facts) {
		troubled(health.PluginDown)(f)
		f.Sidecars = append(f.Sidecars, health.Sidecar{
			Name: "b", Stream: health.Standby,
			Problems: map[int32]health.Problem{7: {Code: health.PluginUnknown, Detail: "who"}},
		})
	}, health.PluginUnknown, "who"},
	{"not taken up", func(f *health.Facts) { f.Unacknowledged = true }, health.Unacknowledged, "not taken up"},
	{
		"the scan waits", func(f *health.Facts) { f.Scan = health.Scan{Phase: "waiting", Blockers: []string{"pid 12"}} },
		health.ScanWaiting, "pid 12",
	},
	{"backfill", func(f *health.Facts) {
		f.Scan = health.Scan{Phase: "rows", Reason: "new pipeline", First: true, Seen: 10, Expected: 30, Rate: 2}
		f.Open = 4
	}, health.Backfill, "10 of about 30 rows seen, 2/s, about 10s to go"},
	{"comparing", func(f *health.Facts) {
		f.Scan = health.Scan{Phase: "rows", Reason: "the table was changed", Seen: 10}
	}, health.Comparing, "(the table was changed), 10 rows seen"},
	{"working", func(f *health.Facts) { f.Open = 2 }, health.Working, "2 rows left"},
	{
		"all are to be tried again", func(f *health.Facts) { f.Open, f.Retrying = 2, 2 }, health.Working,
		"will be tried again",
	},
	{
		"dead letters", func(f *health.Facts) { f.Failed, f.Name = 1, "my docs" }, health.RowsFailed,
		"embedsidecar tasks list --state failed 'my docs'",
	},
	{
		"taken out of the queue", func(f *health.Facts) { f.Cancelled, f.Name = 1, "my docs" }, health.RowsCancelled,
		"embedsidecar tasks requeue 'my docs'",
	},
}

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range states {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := health.Of(whole(c.change))
			if got.Code != c.code || !strings.Contains(got.String(), c.words) {
				t.Errorf("got %s (%s), want %s with %q", got.Code, got, c.code, c.words)
			}
		})
	}
}

// Every state that the papers name can be reached, and the other way round.
func TestTable_IsInTheOrderOfTheLook(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, code := range health.Codes() {
		if seen[code] {
			t.Errorf("%s stands twice", code)
		}
		seen[code] = true
	}
	for _, e := range health.Table() {
		if e.Means == "" || e.Do == "" {
			t.Errorf("%s is not explained", e.Code)
		}
	}
}

func TestStates_ArePapered(t *testing.T) {
	t.Parallel()
	const path, mark = "../../../docs/states.md", "<!-- written by: go test ./internal/pipeline/health -update -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, table, found := strings.Cut(string(content), mark)
	if !found {
		t.Fatalf("%s lacks %q", path, mark)
	}
	want := "\n" + health.Markdown()
	if *update {
		if err := os.WriteFile(path, []byte(before+mark+want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
