package step

import (
	"slices"
	"testing"
)

// A name with a line break must not end a comment.
var hostile = []Step{
	{What: "schema \"x\ny\"", SQL: []string{"CREATE SCHEMA x;", "-- by hand: \"a\nDROP TABLE b\"", "GRANT\nUSAGE"}},
	{What: "table", Undo: []string{"DROP TABLE t"}},
}

func TestScript(t *testing.T) {
	t.Parallel()
	want := "-- schema \"x y\"\nCREATE SCHEMA x;\n-- by hand: \"a DROP TABLE b\"\nGRANT\nUSAGE;\n-- table\n"
	if got := Script(hostile); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	got := slices.Concat(hostile[0].Lines("made"), hostile[1].Lines("would make"))
	want := []string{
		"made schema \"x y\"", "    CREATE SCHEMA x;", "    -- by hand: \"a DROP TABLE b\"", "    GRANT\n    USAGE;",
		"would make table", "  undo: DROP TABLE t;",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
