package quickstart

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestExample: a question is a whole sentence or line, if one of the first rows has one that is short enough.
func TestExample(t *testing.T) {
	t.Parallel()
	const long = "one two three four five six seven eight nine ten eleven."
	for want, texts := range map[string][]string{
		"Invoice shows the wrong amount": {"Invoice shows the wrong amount\n\nThe invoice of last month", "x y"},
		"Reset it":                       {long, "word\n\n" + long, "  Reset  it. Then try again."},
		"version 1.5 is late":            {"version 1.5 is late!"},
		"one two three four five":        {long, "word"},
		"":                               {"", " "},
	} {
		if got := example(texts); got != want {
			t.Errorf("example(%q) = %q, want %q", texts, got, want)
		}
	}
}

// TestFollowing_KeepsItsLine: while the progress is unknown, the line shows the last known one.
func TestFollowing_KeepsItsLine(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@"+testenv.Nowhere(t)+"/nothing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const before = "embedded 3 of 9 rows"
	f := &following{q: &quickstart{pool: pool}, pipeline: &pipeline.Pipeline{ID: 1}, drawn: before}
	if got := f.progress(t.Context()); got != before {
		t.Errorf("%q, want %q as before", got, before)
	}
}
