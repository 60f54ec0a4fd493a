package wording_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

func TestWording(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{wording.Count(0, "row"), "0 rows"},
		{wording.Count(1, "row"), "1 row"},
		{wording.Count(12, "row"), "12 rows"},
		{wording.Size(-1), "0 B"},
		{wording.Size(1023), "1023 B"},
		{wording.Size(1536), "1.5 kB"},
		{wording.Size(64 << 20), "64 MB"},
		{wording.Size(3 << 50), "3072 TB"},
		{wording.Age(0), "0 s"},
		{wording.Age(0.0124), "12 ms"},
		{wording.Age(40), "40 s"},
		{wording.Age(61.4), "1 min 1 s"},
		{wording.Age(3599.7), "1 h"},
		{wording.Age(21000), "5 h 50 min"},
		{wording.Age(200000), "2 days 8 h"},
		{wording.Percent(1), "100.0%"},
		{wording.Percent(0.99999), "99.9%"},
		{wording.Money(0, ""), "0.00"},
		{wording.Money(12.345, "EUR"), "12.35 EUR"},
		{wording.Money(0.0250, ""), "0.025"},
		{wording.Money(5e-07, "EUR"), "0.0000005 EUR"},
		{wording.OneLine("a\nb\tc\x1b[1m é"), "a b c\uFFFD[1m é"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestJoined: a statement among hints has one semicolon.
func TestJoined(t *testing.T) {
	t.Parallel()
	hints := []string{"GRANT SELECT ON t TO r;", "then run it again", "SELECT 1;"}
	if got := wording.Joined(hints); got != "GRANT SELECT ON t TO r; then run it again; SELECT 1;" {
		t.Error(got)
	}
}
