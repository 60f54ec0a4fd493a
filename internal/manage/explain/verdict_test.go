package explain

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// well returns a row with a correct vector; every test below changes something in it.
func well() Story {
	characters, age := 12, 90.0
	return Story{
		Pipeline: "public.docs", Key: "it's 5", Table: "public.docs",
		Row: Row{
			Read: true, Exists: true, Taken: true, Characters: &characters, Bytes: 12, TextHash: "0123456789abcdef",
		},
		Ledger: &Ledger{
			TextHash: "0123456789abcdef", Generation: 2, LSN: "0/15", WrittenAt: time.Unix(1700000000, 0),
			WrittenSecondsAgo: age, SourceAgrees: true, TextAgrees: true,
		},
		Vector: Vector{Stored: true, Ours: true, Generation: 2, Wanted: 2, Current: true, AtLeastSeconds: &age},
		State: State{
			Code: health.UpToDate, Reason: "every known row has its vector", Works: true, Checkpoint: "0/20",
		},
	}
}

func changed(s *Story) {
	s.Ledger.SourceAgrees, s.Ledger.TextAgrees, s.Vector.Current = false, false, false
}

func task(state string, more ...func(*Task)) func(*Story) {
	return func(s *Story) {
		t := &Task{State: state, Lane: "normal", FirstLSN: "0/16", LastLSN: "0/16", Visible: true}
		for _, change := range more {
			change(t)
		}
		s.Task = t
	}
}

func failing(t *Task) {
	t.Class, t.Code, t.Message, t.Attempt = "data", "refused", "the text is poison", 3
}

func soon(t *Task) { t.NextTrySeconds = new(4.0) }

func ahead(n int64) func(*Task) { return func(t *Task) { t.Ahead = n } }

func leased(t *Task) { until := time.Unix(1700000000, 0); t.LeasedBy, t.LeasedUntil = "docs-0", &until }

func paused(s *Story) {
	s.State = State{Code: health.Paused, Reason: "paused: nothing is embedded", Hints: []string{"embedsidecar resume"}}
}

func gone(s *Story) {
	s.Row, s.Ledger, s.Vector = Row{Read: true}, nil, Vector{Wanted: 2}
}

func leftEntry(s *Story) { s.Ledger = well().Ledger }

func without(s *Story) { s.Vector.Stored, s.Vector.Ours, s.Vector.AtLeastSeconds = false, false, nil }

// verdicts lists stories by their difference from a correct row, with the expected verdict.
var verdicts = []struct {
	name   string
	change []func(*Story)
	code   Code
	words  []string
}{
	{"all is well", nil, Current, []string{"the vector matches the row's current text"}},
	{
		"all is well, and a look is due",
		[]func(*Story){task("todo")},
		Current,
		[]string{"current text", "checked again"},
	},
	{"all is well, of a pipeline that is paused", []func(*Story){paused}, Current, nil},
	{"no row", []func(*Story){gone}, Gone, []string{"the row does not exist, and nothing is left of it"}},
	{
		"a row that is gone, and its vector not",
		[]func(*Story){gone, func(s *Story) { s.Vector.Stored = true }},
		NotQueued,
		[]string{"the row is deleted, but its vector still exists", "verify --repair public.docs"},
	},
	{
		"a row that is gone, and its entry not",
		[]func(*Story){gone, leftEntry, task("todo")},
		Waiting,
		[]string{"its ledger entry still exists", "with none before it"},
	},
	{
		"left out by the filter",
		[]func(*Story){without, func(s *Story) { s.Row.Taken = false }},
		Filtered,
		[]string{"the pipeline's filter excludes the row: it has no vector by design"},
	},
	{
		"left out by now",
		[]func(*Story){func(s *Story) { s.Row.Taken, s.Vector.Current = false, false }, task("todo")},
		Waiting,
		[]string{"no vector any more"},
	},
	{
		"empty",
		[]func(*Story){without, func(s *Story) { s.Row.Empty = true }},
		Empty,
		[]string{"the row's text is empty: it has no vector by design"},
	},
	{
		"empty, and never looked at",
		[]func(*Story){without, func(s *Story) { s.Row.Empty, s.Ledger = true, nil }},
		Empty,
		nil,
	},
	{
		"no token",
		[]func(*Story){without, func(s *Story) { s.Ledger.TextHash = "" }},
		NoToken,
		[]string{"nothing to embed"},
	},
	{
		"a dead letter",
		[]func(*Story){changed, task("failed", failing)},
		DeadLetter,
		[]string{
			"the row is a dead letter: data refused: the text is poison", "embedsidecar tasks retry public.docs 'it'\\''s 5'",
			"SELECT * FROM embedsidecar.retry_failed('public.docs', keys => ARRAY['it''s 5']);",
		},
	},
	{"a dead letter of a paused pipeline", []func(*Story){changed, paused, task("failed", failing)}, DeadLetter, nil},
	{
		"a text that fails",
		[]func(*Story){func(s *Story) { s.Row, s.Vector = Row{SQLState: "22P02"}, Vector{} }},
		Unreadable,
		[]string{"SQLSTATE 22P02"},
	},
	{
		"a table that does not fit", []func(*Story){paused, func(s *Story) {
			s.Row, s.Vector = Row{}, Vector{}
			s.State = State{Code: health.Misconfigured, Reason: "column body is gone", Hints: []string{"bring it back"}}
		}}, Unjudged, []string{"column body is gone", "bring it back"},
	},
	{
		"behind others",
		[]func(*Story){changed, task("todo", ahead(7))},
		Waiting,
		[]string{
			"the row's text has changed since its vector was made", "behind 7 others in lane normal", "wait --caught-up",
		},
	},
	{"behind one", []func(*Story){changed, task("todo", ahead(1))}, Waiting, []string{"behind 1 other in"}},
	{"behind very many", []func(*Story){changed, task("todo", ahead(100_000))}, Waiting, []string{"others or more"}},
	{"its lease is over", []func(*Story){changed, task("stale", leased)}, Waiting, []string{"none before it"}},
	{
		"in work",
		[]func(*Story){changed, paused, task("in_progress", leased)},
		Working,
		[]string{"docs-0 is working on it"},
	},
	{
		"to be tried again",
		[]func(*Story){changed, task("retrying", failing, soon)},
		Retrying,
		[]string{"data refused: the text is poison", "retried in 4 s", "embedsidecar tasks retry"},
	},
	{
		"waits for a pause to end",
		[]func(*Story){changed, paused, task("todo")},
		NotAtWork,
		[]string{"paused", "embedsidecar resume"},
	},
	{
		"changed while no sidecar ran", []func(*Story){changed, func(s *Story) {
			s.State = State{Code: health.NoSidecar, Reason: "no sidecar runs", Hints: []string{"embedsidecar run"}}
		}}, NotAtWork, []string{"has changed", "no sidecar runs; embedsidecar run"},
	},
	{
		"not yet seen by others",
		[]func(*Story){task("todo", func(t *Task) { t.Visible = false })},
		Invisible,
		[]string{"SyncRep"},
	},
	{
		"never looked at", []func(*Story){without, changed, func(s *Story) {
			s.Ledger = nil
			s.State = State{Code: health.Backfill, Reason: "embeds the existing rows (backfill), 5 rows seen", Works: true}
		}}, NotQueued, []string{"has not been embedded yet", "wait: embeds the existing rows"},
	},
	{"just changed", []func(*Story){changed}, NotQueued, []string{"it is not queued", "in a moment"}},
	{
		"to be made anew",
		[]func(*Story){func(s *Story) { s.Ledger.Anew, s.Vector.Current = true, false }, task("todo")},
		Waiting,
		[]string{"embedded again"},
	},
	{
		"of an older definition",
		[]func(*Story){func(s *Story) { s.Ledger.Generation, s.Vector.Current = 1, false }},
		NotQueued,
		[]string{"definition has changed"},
	},
	{
		"another column",
		[]func(*Story){func(s *Story) { s.Ledger.SourceAgrees, s.Vector.Current = false, false }},
		NotQueued,
		[]string{"its text has not"},
	},
	{
		"had no text",
		[]func(*Story){changed, without, func(s *Story) { s.Ledger.TextHash, s.Ledger.TextAgrees = "", true }},
		NotQueued,
		[]string{"had nothing to embed"},
	},
	{
		"taken away",
		[]func(*Story){without, func(s *Story) { s.Vector.Current = false }},
		NotQueued,
		[]string{"is no longer there"},
	},
	{
		"somebody else's",
		[]func(*Story){func(s *Story) { s.Vector.Ours, s.Vector.Current = false, false }},
		NotQueued,
		[]string{"another vector than the one"},
	},
	{
		"of an older generation where it lies",
		[]func(*Story){func(s *Story) { s.Vector.Generation, s.Vector.Current = 1, false }},
		NotQueued,
		[]string{"older definition"},
	},
}

// TestP10_EachStoryHasItsVerdict: the state of a row determines its verdict and hints.
func TestP10_EachStoryHasItsVerdict(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	for _, c := range verdicts {
		s := well()
		for _, change := range c.change {
			change(&s)
		}
		if err := s.tell(t.Context(), db.Pool); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if s.Verdict.Code != c.code {
			t.Errorf("%s: %s: %s, want %s", c.name, s.Verdict.Code, s.Verdict, c.code)
		}
		for _, word := range c.words {
			if !strings.Contains(s.Verdict.String(), word) {
				t.Errorf("%s: %q is missing in %q", c.name, word, s.Verdict)
			}
		}
		if lines := s.Lines(); !strings.Contains(strings.Join(lines, "\n"), "Verdict: "+s.Verdict.Sentence) {
			t.Errorf("%s: %q", c.name, lines)
		}
	}
}

// Hidden hashes leave no gap in the text.
func TestLines_HiddenHashesLeaveNoGap(t *testing.T) {
	t.Parallel()
	s := well()
	s.HideHashes()
	if err := s.tell(t.Context(), testenv.DB(t).Pool); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Join(s.Lines(), "\n"); strings.Contains(lines, "(hash") {
		t.Errorf("the story:\n%s", lines)
	}
}

// Clients that search may be told why a row is not found, and not how the program is operated.
func TestTrust_AClientLearnsNothingOfTheOperation(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	for _, c := range []struct {
		change []func(*Story)
		code   Code
	}{
		{[]func(*Story){task("failed", failing)}, DeadLetter},
		{[]func(*Story){changed, task("retrying", failing, soon)}, Retrying},
		{[]func(*Story){changed, task("in_progress", leased)}, Working},
		{[]func(*Story){changed, paused, task("todo")}, NotAtWork},
		{[]func(*Story){paused, func(s *Story) { s.Row.Read = false }}, Unjudged},
		{[]func(*Story){changed, func(s *Story) { s.State.Code, s.State.Reason = health.Comparing, "nothing" }}, NotQueued},
	} {
		s := well()
		for _, change := range c.change {
			change(&s)
		}
		s.hideOperation()
		if err := s.tell(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
		told := s.Verdict.String()
		for _, secret := range []string{"poison", "docs-0", "nothing", "embedsidecar resume"} {
			if s.Verdict.Code != c.code || strings.Contains(told, secret) {
				t.Errorf("%s, want %s: %q with %q", s.Verdict.Code, c.code, told, secret)
			}
		}
	}
}

func TestLines_TellTheWholeStory(t *testing.T) {
	t.Parallel()
	s := well()
	changed(&s)
	paused(&s)
	task("retrying", failing, leased, func(t *Task) { t.CommittedAt, t.LastLSN = time.Unix(1700000100, 0), "0/18" })(&s)
	text := "a text\nof two lines"
	s.AskedAs, s.Row.Text, s.State.Checkpoint = "05", &text, "0/20"
	s.Vector.Generation = 1
	s.History = []Outcome{
		{Outcome: "failed", FinishedSecondsAgo: 3, Code: "refused"},
		{Outcome: "reused", FinishedSecondsAgo: 60},
		{Outcome: "unchanged", FinishedSecondsAgo: 80},
		{Outcome: "embedded", FinishedSecondsAgo: 90},
	}
	db := testenv.DB(t)
	s.Task.CreatedAt = s.Task.CommittedAt
	if err := s.tell(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"public.docs, row it's 5 (asked for as 05)",
		"public.docs embeds public.docs, generation 2; it is not at work: paused: paused: nothing is embedded.",
		"Changes before LSN 0/20 have been read.",
		"The row exists and passes the filter, and its text has 12 characters (hash 0123456789ab).",
		"It has a task because of a change that was committed 0 s ago (LSN 0/16), with others up to LSN 0/18. The task failed and is" +
			" retried soon: data refused: the text is poison (failed attempts: 3). The task was created 0 s ago.",
		"The ledger was last written 1 min 30 s ago (LSN 0/15): text hash 0123456789ab, generation 2, and the row's text has" +
			" changed since.",
		"The destination has the vector that is in the ledger, of generation 1 (the pipeline's is 2), which is at least 1 min 30 s old.",
		"Recently, the latest first: failed 3 s ago (refused), reused 1 min ago (its vector was known), unchanged 1 min 20 s ago," +
			" embedded 1 min 30 s ago.",
		"Verdict: the row's text has changed since its vector was made, and the pipeline is not at work:" +
			" paused: paused: nothing is embedded.",
		"Next: embedsidecar resume",
		"Text: a text\nof two lines",
	}
	got := s.Lines()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("line %d: %q, want %q", i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
	s.Task.FirstLSN, s.Task.State, s.Task.Visible, s.Sentences = "0/0", "stale", false, nil
	if err := s.tell(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	if told := s.Sentences[3].Text; told != "It has a task because of a check that a scan or a user requested 0 s ago. The task was"+
		" leased by docs-0, whose lease has expired, and waits with none before it in lane normal (failed attempts: 3), and its"+
		" change is not yet visible to other sessions. The task was created 0 s ago." {
		t.Errorf("a task of a scan: %s", told)
	}
}
