package jobs

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
)

// TestTexts_WithinTheLimitsOfAJob: a row whose texts have no room is left for another job, whole.
func TestTexts_WithinTheLimitsOfAJob(t *testing.T) {
	t.Parallel()
	seen := map[[sha256.Size]byte]bool{}
	byCount := &texts{}
	rows := 0
	for ; byCount.add([]string{fmt.Sprint("a", rows), fmt.Sprint("b", rows), "known"}, seen, math.MaxInt64); rows++ {
		if rows > embed.MaxJobTexts {
			t.Fatal("it takes any number")
		}
	}
	if want := embed.MaxJobTexts - 1; len(byCount.list) != want || len(byCount.ids) != want || rows != want/2 {
		t.Errorf("%d texts of %d rows, want %d", len(byCount.list), rows, want)
	}
	if !byCount.add([]string{"known"}, seen, math.MaxInt64) || !byCount.add([]string{"last"}, seen, math.MaxInt64) ||
		byCount.add([]string{"one more"}, seen, math.MaxInt64) {
		t.Errorf("%d texts, the last row that has room is left out, or one is taken that has none", len(byCount.list))
	}
	byBytes, half := &texts{}, strings.Repeat("x", embed.MaxJobBytes/2)
	for i, want := range []bool{true, true, false} {
		list := []string{fmt.Sprint(i, half[1:])}
		if got := byBytes.add(list, map[[sha256.Size]byte]bool{}, math.MaxInt64); got != want {
			t.Errorf("row %d: %t with %d bytes", i, got, byBytes.bytes)
		}
	}
	byBudget, left := &texts{}, int64(embed.Result{}.TokensOf("four"))
	for i, want := range []bool{true, false} {
		if got := byBudget.add([]string{fmt.Sprint("fou", i)}, map[[sha256.Size]byte]bool{}, left); got != want {
			t.Errorf("row %d: %t with %d tokens of %d", i, got, byBudget.tokens, left)
		}
	}
}
