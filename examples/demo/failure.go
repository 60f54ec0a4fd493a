package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

var errInterrupted = errors.New("interrupted")

// failure is an error with ways out.
type failure struct {
	err   error
	hints []string
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

func fail(err error, hints ...string) error { return &failure{err: err, hints: hints} }

func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "demo: error: %s\n", strings.TrimSpace(err.Error()))
	hints := []string{}
	if f, ok := errors.AsType[*failure](err); ok {
		hints = append(hints, f.hints...)
	}
	if errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "No space left on device") {
		hints = append(hints, "free some space, or set TMPDIR to a folder on another disk")
	}
	for _, hint := range hints {
		fmt.Fprintf(w, "demo: hint: %s\n", hint)
	}
}
