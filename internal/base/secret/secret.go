// Package secret recognizes names of secrets, and masks their values, in the same way for configuration, plugin output
// and logs.
package secret

import (
	"regexp"
	"strings"
)

// Mask replaces hidden text.
const Mask = "xxxxx"

var (
	names = regexp.MustCompile(`(?i)(key|token|secret|password|passwd|passphrase|credential|auth|authorization)s?$`)
	// Counts of tokens are not secrets.
	counts = regexp.MustCompile(`(?i)(max|min|batch)_tokens$`)
)

// Variable reports whether a variable of this name holds a secret.
func Variable(name string) bool { return names.MatchString(name) && !counts.MatchString(name) }

// File reports whether a variable of this name has the name of a secret's file.
func File(name string) bool {
	name, ok := strings.CutSuffix(strings.ToUpper(name), "_FILE")
	return ok && Variable(name)
}
