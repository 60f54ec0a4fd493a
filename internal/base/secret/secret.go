// Package secret knows what is called like a secret and how one is shown, the same in configuration, plugins' words
// and logs.
package secret

import (
	"regexp"
	"strings"
)

// Mask stands for what is not shown.
const Mask = "xxxxx"

var (
	names = regexp.MustCompile(`(?i)(key|token|secret|password|passwd|passphrase|credential|auth|authorization)s?$`)
	// Counts of tokens, which are none of those that open doors.
	counts = regexp.MustCompile(`(?i)(max|min|batch)_tokens$`)
)

// Variable reports whether a variable of this name holds a secret.
func Variable(name string) bool { return names.MatchString(name) && !counts.MatchString(name) }

// File reports whether a variable of this name names the file of a secret.
func File(name string) bool {
	name, ok := strings.CutSuffix(strings.ToUpper(name), "_FILE")
	return ok && Variable(name)
}
