package output

import (
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// IsTerminal reports whether a person sees what is written.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// UseColor decides by flag, then by the customs of NO_COLOR and TERM, then by where the output goes.
func UseColor(flag string, environ []string, terminal bool) bool {
	vars := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
	}
	switch {
	case flag == "always":
		return true
	case flag == "never", vars["NO_COLOR"] != "", vars["TERM"] == "dumb":
		return false
	}
	return terminal
}

// Color is that of a word.
type Color = text.Color

// The colours of verdicts.
const (
	Green  = text.FgGreen
	Yellow = text.FgYellow
	Red    = text.FgRed
)

// Fill breaks a text into lines of a width that is easy to read; all but the first are indented.
func Fill(s string, indent int) string {
	const width = 110
	lines := strings.Split(text.WrapSoft(s, width-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}
