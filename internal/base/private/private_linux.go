// Package private hides this process's data from other processes.
package private

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Keep hides this process's environment and memory, which contain passwords, keys and texts, from other processes of
// its user, above all plugins, and excludes them from core dumps. Processes that it starts are not affected.
func Keep() error {
	err := errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
	return wrap.Errorf(err, "keep memory and environment from other processes")
}
