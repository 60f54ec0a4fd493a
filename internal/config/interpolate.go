package config

import (
	"fmt"
	"strings"
)

// expand replaces ${VAR} by the variable's value, ${VAR:-default} by the default when the variable is unset or empty,
// and $$ by $. Any other $ stays, so that SQL such as 'price > $5' needs no escape.
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
			return "", fmt.Errorf("%q is no variable: expected ${NAME} or ${NAME:-default}", "${"+body+"}")
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
