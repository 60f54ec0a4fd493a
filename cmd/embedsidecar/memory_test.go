package main

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestP9_MemoryIsThatOfTheGroup: Go's memory limit follows the control group, unless GOMEMLIMIT is set.
func TestP9_MemoryIsThatOfTheGroup(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	none := func() (uint64, error) { return 0, errors.New("no control groups") }
	for name, c := range map[string]struct {
		group  memlimit.Provider
		chosen string
		want   int64
	}{
		"a limit":              {group: memlimit.Limit(1000 << 20), want: 700 << 20},
		"hardly any":           {group: memlimit.Limit(32 << 20), want: 40 << 20},
		"none":                 {group: none, want: math.MaxInt64},
		"said in the variable": {group: memlimit.Limit(1000 << 20), chosen: "5GiB", want: math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("GOMEMLIMIT", c.chosen)
		if c.chosen == "" {
			_ = os.Unsetenv("GOMEMLIMIT")
		}
		limitMemory(c.group, slog.New(slog.DiscardHandler))
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}
