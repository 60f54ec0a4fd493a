package house

import (
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// width is the last column of a line. The linter lll holds Go to it.
const width = 120

// TestWidth holds SQL, Markdown and HTML templates to the width. Tables and lines with a URL are excepted, and so is
// SQL that is generated.
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
