package config

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is one mistake in what a user wrote.
type Problem struct {
	Path    string // what is wrong: "workers.count", "--columns", "pipelines[0].into"; "" for the whole
	Place   string // where it was set: "embedsidecar.yaml:12:8", "EMBEDSIDECAR_WORKERS", "--workers"; "" when unknown
	Message string
}

func (p Problem) String() string {
	var parts []string
	for _, s := range []string{p.Place, p.Path} {
		if s != "" && (len(parts) == 0 || parts[0] != s) {
			parts = append(parts, s)
		}
	}
	return strings.Join(append(parts, p.Message), ": ")
}

// Error is everything that is wrong with a configuration, found in one go. It never holds a password.
type Error struct {
	Problems []Problem
	Hint     string // a way out, or ""
}

// mostListed is how many mistakes are listed: a text with thousands of them is of no use to its reader.
const mostListed = 50

// Error lists the problems, one a line when there are several.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the configuration has %d mistakes:", len(e.Problems))
	for _, p := range e.Problems[:min(len(e.Problems), mostListed)] {
		b.WriteString("\n  ")
		b.WriteString(strings.ReplaceAll(p.String(), "\n", "\n  "))
	}
	if more := len(e.Problems) - mostListed; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// Hints returns the way out, if one is known.
func (e *Error) Hints() []string {
	if e.Hint == "" {
		return nil
	}
	return []string{e.Hint}
}

// shown is an error's text where the subject is already named.
func shown(err error) string {
	if parse, ok := errors.AsType[*ParseError](err); ok {
		return parse.shown()
	}
	return err.Error()
}

func mistake(message string) error {
	return &Error{Problems: []Problem{{Message: message}}}
}
