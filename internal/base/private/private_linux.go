// Package private keeps from other processes what this one knows.
package private

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Keep keeps this process's environment and memory, which hold passwords, keys and texts, from other processes
// of its user, plugins above all, and out of core dumps. What it starts is as others are again.
func Keep() error {
	err := errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
	return wrap.Errorf(err, "keep memory and environment from other processes")
}
