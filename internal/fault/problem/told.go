package problem

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

// Told is an error in the form for users and programs. It contains no password.
type Told struct {
	code.Entry
	Message  string   `json:"message"`
	ExitCode int      `json:"exit_code"`
	SQLState string   `json:"sqlstate,omitempty"`
	Hints    []string `json:"hints,omitempty"`
}

// Tell collects the information about an error; redact removes passwords from it.
func Tell(err error, redact func(string) string) Told {
	t := Told{Entry: code.Of(Code(err)), Message: redact(database.Words(err))}
	for _, hint := range Hints(err) {
		t.Hints = append(t.Hints, redact(hint))
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		t.SQLState = pg.Code
	}
	return t
}

// String formats the error in lines of text.
func (t *Told) String() string {
	var b strings.Builder
	line := func(parts ...string) { b.WriteString(wording.Printable(strings.Join(parts, "")) + "\n") }
	line("embedsidecar: error ", string(t.Code), ": ", within(t.Message))
	for _, hint := range t.Hints {
		if IsStatement(hint) { // on lines of its own, for copying
			line(hint)
			continue
		}
		line("embedsidecar: hint: ", within(hint))
	}
	if t.Code != code.Usage && t.Code != code.Interrupted {
		line("embedsidecar: more: embedsidecar help ", string(t.Code))
	}
	return b.String()
}

// within indents a name with a line break, so that it cannot add a line that looks like one of ours.
func within(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		if i > 0 && (strings.HasPrefix(lines[i], "embedsidecar: ") || IsStatement(lines[i])) {
			lines[i] = "  " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// IsStatement reports whether a hint is a statement to run, or a comment between statements.
func IsStatement(hint string) bool {
	first, _, _ := strings.Cut(hint, " ")
	return strings.HasPrefix(hint, "-- ") || strings.HasSuffix(hint, ";") && first == strings.ToUpper(first)
}
