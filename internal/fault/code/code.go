// Package code defines the error codes, whose meaning never changes, and describes the cause and remedy of each. An
// error carries its code, or package problem finds one for it.
package code

import (
	"slices"
	"strings"
)

// Code is a kind of error: "ES" and four digits, of which the first two are its area.
type Code string

// Unexpected errors, and commands that were ended from outside.
const (
	Internal    Code = "ES0001"
	Timeout     Code = "ES0002"
	Interrupted Code = "ES0003"
	NoMatch     Code = "ES0004"
	Failed      Code = "ES0005"
)

// Usage and configuration.
const (
	Usage         Code = "ES0101"
	Configuration Code = "ES0102"
	NotFound      Code = "ES0103"
	NoPipeline    Code = "ES0104"
	NoModel       Code = "ES0105"
	TwoDatabases  Code = "ES0106"
)

// The state of the database.
const (
	NotSetUp    Code = "ES0201"
	WALLevel    Code = "ES0202"
	Pgvector    Code = "ES0203"
	NoTable     Code = "ES0204"
	Table       Code = "ES0205"
	Key         Code = "ES0206"
	Destination Code = "ES0207"
	Width       Code = "ES0208"
	Taken       Code = "ES0209"
	Expression  Code = "ES0210"
	Pipeline    Code = "ES0211"
	Publication Code = "ES0212"
	OldServer   Code = "ES0213"
	Copied      Code = "ES0214"
	NoText      Code = "ES0215"
	Join        Code = "ES0216"
)

// The slot, and other exclusive resources.
const (
	SlotLost    Code = "ES0301"
	OtherSlot   Code = "ES0302"
	NoSlotFree  Code = "ES0303"
	Locked      Code = "ES0304"
	InitRunning Code = "ES0305"
	Conflict    Code = "ES0306"
	SlotHeld    Code = "ES0307"
	Awaited     Code = "ES0308"
)

// The connection to the database.
const (
	Unreachable Code = "ES0401"
	Starting    Code = "ES0402"
	Full        Code = "ES0403"
	Auth        Code = "ES0404"
	NoDatabase  Code = "ES0405"
	TLS         Code = "ES0406"
	Standby     Code = "ES0407"
	Pooler      Code = "ES0408"
	BadURL      Code = "ES0409"
	NoAnswer    Code = "ES0410"
)

// Privileges and trust.
const (
	Permission Code = "ES0501"
	Untrusted  Code = "ES0502"
	RLS        Code = "ES0503"
)

// Plugins and models.
const (
	PluginStart  Code = "ES0601"
	Checksum     Code = "ES0602"
	Embedder     Code = "ES0603"
	EmbedderBusy Code = "ES0604"
	Crashed      Code = "ES0605"
	Text         Code = "ES0606"
)

// Entry describes a code.
type Entry struct {
	Code  Code   `json:"code"`
	Title string `json:"title"`
	Cause string `json:"cause"`
	Fix   string `json:"fix"`
	Docs  string `json:"docs"` // a file of the repository, with its heading
}

// Find returns the description of a code in any spelling, such as "es0307" and "307".
func Find(text string) (Entry, bool) {
	digits := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(text)), "ES")
	if len(digits) < 3 || len(digits) > 4 {
		return Entry{}, false
	}
	wanted := Code("ES" + strings.Repeat("0", 4-len(digits)) + digits)
	at := slices.IndexFunc(catalogue, func(e Entry) bool { return e.Code == wanted })
	if at < 0 {
		return Entry{}, false
	}
	return catalogue[at], true
}

// Of returns the description of a code of this package.
func Of(c Code) Entry {
	e, _ := Find(string(c))
	return e
}

// All returns every code, in order.
func All() []Entry { return slices.Clone(catalogue) }
