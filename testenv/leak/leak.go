// Package leak looks for goroutines that tests leave behind. A goroutine that is about to end is no leak, however
// long a busy machine takes to let it: so this waits, as no fixed number of short looks can.
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

// Find returns an error if goroutines are left that do not end. Those that options ignore may stay.
func Find(options ...goleak.Option) error {
	for deadline := time.Now().Add(timeout); ; {
		err := goleak.Find(options...) // takes some looks itself, with pauses
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Main runs the tests of a binary and then Find, unless a test has failed: that leaves goroutines, too, and they
// would hide the reason. It returns the exit status.
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
