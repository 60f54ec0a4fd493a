package config

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is one mistake in a user's configuration.
type Problem struct {
	Path    string // the setting: "workers.count", "--columns", "pipelines[0].into"; "" for the whole
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

// Error has all mistakes of a configuration. It never contains a password.
type Error struct {
	Problems []Problem
	Hint     string // what to do, or ""
}

// mostListed is how many mistakes are listed.
const mostListed = 50

// Error lists the problems, one per line if there are several.
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

// Hints returns what to do, if that is known.
func (e *Error) Hints() []string {
	if e.Hint == "" {
		return nil
	}
	return []string{e.Hint}
}

// shown returns an error's text without the subject.
func shown(err error) string {
	if parse, ok := errors.AsType[*ParseError](err); ok {
		return parse.shown()
	}
	return err.Error()
}

func mistake(message string) error {
	return &Error{Problems: []Problem{{Message: message}}}
}

// expand replaces ${VAR} by the variable's value, ${VAR:-default} by the default if the variable is unset or empty, and
// $$ by $. Any other $ stays, so SQL such as 'price > $5' needs no escaping.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			s = s[i+2:]
			continue
		case '{':
		default:
			b.WriteByte('$')
			s = s[i+1:]
			continue
		}
		body, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			return "", fmt.Errorf("${ without }: write $$ for a plain $")
		}
		name, fallback, hasDefault := strings.Cut(body, ":-")
		if !isVariable(name) {
			return "", fmt.Errorf("%q is not a variable: expected ${NAME} or ${NAME:-default}", "${"+body+"}")
		}
		value, set := lookup(name)
		switch {
		case hasDefault && value == "":
			value = fallback
		case !set:
			return "", fmt.Errorf("the environment variable %s is not set: set it, or write ${%s:-default}", name, name)
		}
		b.WriteString(value)
		s = rest
	}
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
