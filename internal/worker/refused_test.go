package worker

import (
	"strings"
	"testing"
)

// A trigger's own message is the user's; what it quotes of the row is not shown.
func TestWithout_LeavesTheRowOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ message, text, want string }{
		{"no vectors on mondays", "a secret of the row", "no vectors on mondays"},
		{"no vectors for: a secret of the row!", "a secret of the row", "no vectors for: [...]!"},
		{"a secret of", "this is\n a   secret of the row", "[...]"},
		{"row 7 says ab", "ab", "row 7 says [...]"},
		{"nothing", "", "nothing"},
	} {
		if got := without(c.message, c.text); got != c.want {
			t.Errorf("%q without %q: %q, want %q", c.message, c.text, got, c.want)
		}
	}
	if got := oneLine(" a\n b "+strings.Repeat("ü", 300), 5); got != "a b ü..." {
		t.Errorf("got %q", got)
	}
}
