package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// niceness returns the priorities of all threads of a process.
func niceness(t *testing.T, pid int) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(paths) == 0 {
		t.Fatalf("threads of %d: %q, %v", pid, paths, err)
	}
	found := map[string]bool{}
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		const nice = 16 // proc(5), counted from the state
		found[strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[nice]] = true
	}
	return found
}

// All threads of a spinning plugin get the lowest priority, and it still embeds. An idle plugin keeps its priority.
func TestIdle_WhoBurnsCPUTimeWithNothingToDoLosesPriority(t *testing.T) {
	t.Parallel()
	sound, spins := faulty(t, ""), faulty(t, "burn")
	mustEmbed(t, sound, "a")
	mustEmbed(t, spins, "a")
	before := niceness(t, sound.Pid())
	eventually(t, "the priority of the plugin that spins is the lowest", func() error {
		if got := niceness(t, spins.Pid()); len(got) != 1 || !got["19"] {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	mustEmbed(t, spins, "b")
	if after := niceness(t, sound.Pid()); len(after) != len(before) || after["19"] && !before["19"] {
		t.Errorf("the priority of one that rests was %v and is %v", before, after)
	}
}
