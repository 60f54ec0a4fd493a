package pipeline

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSplitKey_InvertsJoinKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[ab|\\"{}, é]{0,6}`), 1, 4).Draw(t, "values")
		got, err := SplitKey(JoinKey(values), len(values))
		if err != nil || !slices.Equal(got, values) {
			t.Fatalf("SplitKey(JoinKey(%q)) = %q, %v", values, got, err)
		}
	})
}

func TestSplitKey_RefusesAnotherWidth(t *testing.T) {
	for _, key := range []string{`a`, `a|b|c`, `a|b\`} {
		if got, err := SplitKey(key, 2); err == nil {
			t.Errorf("SplitKey(%q, 2) = %q, want an error", key, got)
		}
	}
}

func TestParseVector_ReadsWhatPgvectorPrints(t *testing.T) {
	got, err := ParseVector([]byte("[1,-2.5,3e-05,0]"))
	if err != nil || !slices.Equal(got, []float32{1, -2.5, 3e-05, 0}) {
		t.Errorf("ParseVector = %v, %v", got, err)
	}
	for _, bad := range []string{"", "[", "1,2", "[1,]x", "[1,x]", "[1,,2]"} {
		if got, err := ParseVector([]byte(bad)); err == nil {
			t.Errorf("ParseVector(%q) = %v, want an error", bad, got)
		}
	}
}

func TestSourceHash_TellsNullFromEmpty(t *testing.T) {
	null, empty := SourceHash(nil).AppendColumn(nil), SourceHash(nil).AppendColumn([]byte{})
	if slices.Equal(null, empty) {
		t.Error("NULL and the empty string have the same hash")
	}
	if len(null) != ColumnHashSize || len(empty) != ColumnHashSize {
		t.Errorf("widths %d and %d, want %d", len(null), len(empty), ColumnHashSize)
	}
}

func TestListOf_WritesAnArray(t *testing.T) {
	texts := []string{`a`, `"b"`, `c\d`, `NULL`, ``, `{e,f}`}
	if got := (KeyColumn{Type: "t", ByInput: true}).ListOf(texts); got != `{"a","\"b\"","c\\d","NULL","","{e,f}"}` {
		t.Errorf("ListOf = %v", got)
	}
	if got, ok := (KeyColumn{Type: "t"}).ListOf(texts).([]string); !ok || !slices.Equal(got, texts) {
		t.Errorf("ListOf = %v", got)
	}
}
