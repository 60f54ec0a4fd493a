// Package leak detects goroutines that tests leave behind. It waits up to two minutes for goroutines to end, because a
// busy machine may delay them.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeout is how long goroutines may take to end.
const timeout = 2 * time.Minute

// Find returns an error if goroutines are left that do not end, except those that options ignore.
func Find(options ...goleak.Option) error {
	for deadline := time.Now().Add(timeout); ; {
		err := goleak.Find(options...) // retries itself, with pauses
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Main runs the tests of a binary and then Find, and returns the exit status. After a failed test it skips Find,
// because such a test leaves goroutines that would hide the reason.
func Main(m *testing.M, options ...goleak.Option) int {
	status := m.Run()
	if status != 0 {
		return status
	}
	if err := Find(options...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
