package health_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// facts are the inputs of states() about a pipeline.
type facts map[string]any

// with returns an idle pipeline with some different facts.
func with(differs facts) facts {
	f := facts{
		"pipeline_id": 7, "pipeline": "docs", "table_schema": "public", "table_name": "docs", "replaced_by": "",
		"dropped": false, "status": "active", "status_detail": "", "switched_on": true, "itself_enabled": true,
		"is_open": true, "active_hours": "", "slot_name": "s", "slot_state": "streaming", "slot_reason": "streamed by a",
		"slot_hints": []string{}, "sidecars": []any{map[string]any{}}, "unrouted": false, "scan_phase": "done",
		"scan_reason": "", "scan_first": false, "scan_seen": 0, "scan_expected": 0, "scan_rate": 0, "scan_left": 0,
		"pending": 0, "running": 0, "retrying": 0, "failed": 0, "cancelled": 0, "aside": 0,
	}
	maps.Copy(f, differs)
	return f
}

func problems(codes ...health.Code) facts {
	var list []any
	for _, code := range codes {
		says := map[string]any{}
		if code != "" {
			says["7"] = map[string]any{"code": code, "detail": "because of " + code}
		}
		list = append(list, says)
	}
	return facts{"sidecars": list}
}

func ofSlot(state health.Code) facts { return facts{"slot_state": state, "slot_reason": "because"} }

func scan(more facts) facts {
	f := facts{"scan_phase": "rows", "scan_reason": "why", "pending": 4}
	maps.Copy(f, more)
	return f
}

// stateOf returns the state from the database.
func stateOf(t rapid.TB, db *testenv.Database, f facts) (s health.State) {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Pool.QueryRow(context.Background(), "SELECT state, coalesce(reason, ''), hints FROM embedsidecar.state_of($1::text::jsonb)", string(text)).
		Scan(&s.Code, &s.Reason, &s.Hints)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// stateCase has facts about a pipeline and the expected state.
type stateCase struct {
	facts facts
	code  health.Code
	words string
}

// stateCases returns all cases.
func stateCases() map[string]stateCase {
	all := troubleCases()
	maps.Copy(all, workCases())
	return all
}

// troubleCases are pipelines that cannot work.
func troubleCases() map[string]stateCase {
	otherwise := map[string]any{"reason": "no table", "hints": []string{"make one"}}
	return map[string]stateCase{
		"nothing to do": {nil, health.UpToDate, ""},
		"a copy":        {ofSlot(health.Copied), health.Copied, "because"},
		"the table is gone": {
			facts{"dropped": true, "switched_on": false},
			health.Missing, "public.docs was dropped",
		},
		"and another has its name": {
			facts{"dropped": true, "replaced_by": "x.docs"},
			health.Missing, "x.docs is now another table",
		},
		"a column is gone": {
			facts{"status": "misconfigured", "status_detail": "no body"},
			health.Misconfigured, "no body",
		},
		"a status of a newer program": {facts{"status": "odd", "status_detail": "why"}, health.Misconfigured, "odd: why"},
		"left the publication":        {facts{"status": "unpublished", "status_detail": "out"}, health.Unpublished, "out"},
		"no publication":              {ofSlot(health.Unpublished), health.Unpublished, "because"},
		"another table has its name": {
			facts{"replaced_by": "public.docs", "table_name": "old"},
			health.Replaced, "now called public.old",
		},
		"the slot waits, while paused": {
			facts{"slot_state": "slot_waiting", "slot_reason": "because", "switched_on": false},
			health.SlotWaiting, "",
		},
		"no slot": {ofSlot(health.SlotLost), health.SlotLost, "because"},
		"all paused": {
			facts{"switched_on": false, "pending": 3},
			health.Paused, "SELECT embedsidecar.resume();",
		},
		"paused by name": {
			facts{"itself_enabled": false, "paused_commands": "embedsidecar resume docs", "paused_sql": "x"},
			health.Paused, "resume docs; x",
		},
		"outside of its hours": {
			facts{"is_open": false, "active_hours": "22:00-06:00 UTC", "pending": 3},
			health.OutsideHours, "(22:00-06:00 UTC): changes are queued, nothing is embedded (3 rows waiting)",
		},
		"when somebody asks": {
			facts{"is_open": false, "active_hours": "manual"},
			health.OutsideHours, "resume docs --for 1h",
		},
		"a budget of the day is spent, without a sidecar": {
			facts{"slot_state": "no_sidecar", "pending": 3, "budgets": []any{
				map[string]any{"kind": "pipeline", "name": "docs", "spent": "", "words": "nothing"},
				map[string]any{
					"kind": "model", "name": "m", "spent": "tokens_per_day", "goes_on": "2026-01-02T00:00:00+00:00",
					"words": "the budget tokens_per_day of model m is spent; it goes on at 2026-01-02 00:00 (UTC)",
				},
			}},
			health.BudgetSpent, "the budget tokens_per_day of model m is spent; it goes on at 2026-01-02 00:00 (UTC); until then " +
				"changes are queued, nothing is embedded (3 rows waiting): raise tokens_per_day under budget of model m",
		},
		"no sidecar, a row waits": {
			facts{"slot_state": "no_sidecar", "slot_reason": "none", "retrying": 1},
			health.NoSidecar, "none (1 row waiting)",
		},
		"stuck":          {ofSlot(health.StreamStuck), health.StreamStuck, "because"},
		"all stand by":   {ofSlot(health.StandbyOnly), health.StandbyOnly, "because"},
		"switched off":   {problems(health.Disabled), health.Disabled, "because of disabled"},
		"unknown plugin": {problems(health.PluginUnknown), health.PluginUnknown, "because"},
		"plugin gone":    {problems(health.PluginDown), health.PluginDown, "because"},
		"another model":  {problems(health.OtherModel), health.OtherModel, "because"},
		"all texts fail": {
			problems(health.Failing),
			health.Failing, "embedsidecar tasks list --state failed --state retrying docs shows the errors",
		},
		"a problem of a newer program": {problems("odd"), health.Misconfigured, "because of odd"},
		"one of two can work":          {problems(health.PluginDown, ""), health.UpToDate, ""},
		"neither can":                  {problems(health.PluginDown, health.PluginUnknown), health.PluginUnknown, "because"},
		"could not be set up": {
			facts{"status": "not_set_up", "status_detail": "no table", "otherwise": otherwise},
			health.NotSetUp,
			"no table: make one",
		},
		"configured otherwise, and a row waits": {
			facts{"otherwise": otherwise, "pending": 1},
			health.Otherwise,
			"no table; the pipeline works as it is set up (1 row waiting): make one",
		},
	}
}

// workCases are pipelines with work to do.
func workCases() map[string]stateCase {
	return map[string]stateCase{
		"not taken up": {facts{"unrouted": true}, health.Unacknowledged, "not loaded"},
		"the scan waits": {
			facts{"scan_phase": "waiting", "blocked_by": "pid 12"},
			health.ScanWaiting, "pid 12",
		},
		"the scan is about to begin": {facts{"scan_phase": "waiting"}, health.Comparing, "about to begin"},
		"backfill": {
			scan(facts{"scan_first": true, "scan_seen": 10, "scan_expected": 30, "scan_rate": 2.2, "scan_left": 70}),
			health.Backfill, "10 of about 30 rows embedded, 2/s, about 1 min 10 s to go",
		},
		"comparing": {scan(facts{"scan_seen": 10}), health.Comparing, "(why), 10 rows done"},
		"what is left of rows": {
			scan(facts{"scan_phase": "orphans", "scan_seen": 10}),
			health.Comparing, "10 rows done, now the vectors of deleted rows",
		},
		"the queue is held": {
			facts{"aside": 2, "pending": 2, "blocked_by": "pid 9"},
			health.QueueHeld, "2 of its changes cannot be queued, because of pid 9",
		},
		"working":                   {facts{"pending": 1, "running": 1}, health.Working, "2 rows left"},
		"all are to be tried again": {facts{"retrying": 2}, health.Working, "embedsidecar tasks list --state retrying docs shows"},
		"dead letters": {
			facts{"failed": 1, "pipeline": "it's"},
			health.RowsFailed, `tasks retry 'it'\''s', or`,
		},
		"taken out of the queue": {
			facts{"cancelled": 1, "pipeline": "my docs"},
			health.RowsCancelled, "embedsidecar tasks requeue 'my docs'",
		},
		"paused, with failed and more": {facts{"switched_on": false, "failed": 1, "unrouted": true}, health.Paused, ""},
		"plugin down, a row is retried": {
			facts{"sidecars": problems(health.PluginDown)["sidecars"], "retrying": 1},
			health.PluginDown, "(1 row waiting)",
		},
	}
}

// TestP10_EachPipelineHasItsState: the facts determine a pipeline's state, the reason, and the hints.
func TestP10_EachPipelineHasItsState(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	seen := map[health.Code]bool{}
	for name, c := range stateCases() {
		s := stateOf(t, db, with(c.facts))
		seen[s.Code] = true
		if s.Code != c.code || !strings.Contains(s.String(), c.words) || s.Reason == "" {
			t.Errorf("%s: %s (%s), want %s with %q", name, s.Code, s, c.code, c.words)
		}
	}
	for _, code := range health.Codes() {
		if !seen[health.Code(code)] {
			t.Errorf("no pipeline becomes %s", code)
		}
	}
	if codes := testenv.Values[string](db, "SELECT unnest(embedsidecar.state_codes())"); !slices.Equal(codes, health.Codes()) {
		t.Errorf("the database knows %q, the papers %q", codes, health.Codes())
	}
}

// With any facts, the state is one that docs/states.md names, with a reason. A pipeline that is switched off, or
// outside of its hours, never counts as working.
func TestProperty_TheStateIsAlwaysOneOfTheNamed(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	some := func(t *rapid.T, name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	yes := func(t *rapid.T, name string) bool { return rapid.Bool().Draw(t, name) }
	few := func(t *rapid.T, name string) int { return rapid.IntRange(0, 2).Draw(t, name) }
	works := health.Codes()[slices.Index(health.Codes(), string(health.Unacknowledged)):]
	rapid.Check(t, func(t *rapid.T) {
		f := with(facts{
			"status":        some(t, "status", "", "active", "missing", "misconfigured", "unpublished", "odd"),
			"status_detail": "because",
			"replaced_by":   some(t, "replaced", "", "other"), "dropped": few(t, "dropped") == 0,
			"switched_on": yes(t, "switched on"), "itself_enabled": yes(t, "enabled"), "is_open": yes(t, "open"),
			"slot_state": some(t, "slot", "streaming", "copied", "unpublished", "slot_waiting", "slot_lost", "no_sidecar",
				"stream_stuck", "standby_only"),
			"unrouted": yes(t, "unrouted"), "scan_phase": some(t, "scan", "", "waiting", "rows", "orphans", "done"),
			"scan_first": yes(t, "first"), "pending": few(t, "pending"), "running": few(t, "running"),
			"retrying": few(t, "retrying"), "failed": few(t, "failed"), "cancelled": few(t, "cancelled"),
			"aside": few(t, "aside"),
		})
		var codes []health.Code
		for range 1 + few(t, "sidecars") {
			codes = append(codes, health.Code(some(t, "code", append(health.Codes(), "", "odd")...)))
		}
		maps.Copy(f, problems(codes...))
		s := stateOf(t, db, f)
		if !slices.Contains(health.Codes(), string(s.Code)) || s.Reason == "" {
			t.Fatalf("%+v: %+v", f, s)
		}
		on := f["switched_on"].(bool) && f["itself_enabled"].(bool) && f["is_open"].(bool)
		if slices.Contains(works, string(s.Code)) && !on && codes[0] == "" {
			t.Fatalf("at work, though it is switched off: %+v: %+v", f, s)
		}
	})
}
