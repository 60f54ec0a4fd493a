package house

import (
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// width is the maximum width of a line. The linter lll enforces it for Go.
const width = 120

// TestWidth enforces the width for SQL, Markdown and HTML templates. Tables, lines with a URL and generated SQL are
// exempt.
func TestWidth(t *testing.T) {
	t.Parallel()
	for _, file := range files(t) {
		kind := path.Ext(file)
		if !slices.Contains([]string{".sql", ".md", ".html"}, kind) || strings.Contains(file, "testdata/") {
			continue
		}
		number := 0
		for line := range strings.Lines(read(t, file)) {
			number++
			line = strings.TrimSuffix(line, "\n")
			table := kind == ".md" && strings.HasPrefix(line, "|")
			if utf8.RuneCountInString(line) > width && !table && !strings.Contains(line, "://") {
				t.Errorf("%s:%d is wider than %d columns", file, number, width)
			}
		}
	}
}
