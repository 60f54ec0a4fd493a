package pipeline

import "testing"

// The combination has the later hashes, and the earlier one where the later is unknown.
func TestSeen_With(t *testing.T) {
	t.Parallel()
	column := func(text string) SourceHash { return SourceHash{}.AppendColumn([]byte(text)) }
	first := NewSeen(true).Append(column("a")).Append(column("b"))
	second := NewSeen(false).Append(column("c")).Append(nil)
	row := append(column("c"), column("b")...)
	if both := first.With(second); !both.Is(row, nil) || both.Is(append(column("a"), column("b")...), nil) {
		t.Error("a new row is not what its last change left")
	}
	if second.Is(row, nil) || !second.Is(row, row) {
		t.Error("a column that nobody saw is not that of the ledger")
	}
	for what, s := range map[string]Seen{
		"nothing before": Seen(nil).With(second), "nothing after": first.With(nil),
		"other columns": first.With(NewSeen(false).Append(nil)),
	} {
		if s != nil {
			t.Errorf("%s: %v was seen", what, s)
		}
	}
}
