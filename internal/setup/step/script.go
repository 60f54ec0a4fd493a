package step

import (
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Script writes steps as SQL for psql.
func Script(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("-- " + wording.OneLine(s.What) + "\n")
		for _, sql := range s.SQL {
			b.WriteString(terminated(sql) + "\n")
		}
	}
	return b.String()
}

// Lines tell a person what was made, or would be, and how to undo it.
func (s *Step) Lines(verb string) []string {
	lines := []string{verb + " " + s.What}
	for _, sql := range s.SQL {
		lines = append(lines, "    "+indented(sql))
	}
	for _, sql := range s.Undo {
		lines = append(lines, "  undo: "+indented(sql))
	}
	return lines
}

// terminated ends a statement with a semicolon; a comment stays as it is, in one line: names in it may hold line
// breaks.
func terminated(sql string) string {
	if strings.HasPrefix(sql, "-- ") {
		return wording.OneLine(sql)
	}
	return strings.TrimSuffix(sql, ";") + ";"
}

// indented keeps the lines of a statement together below a heading.
func indented(sql string) string {
	return strings.ReplaceAll(terminated(sql), "\n", "\n    ")
}
