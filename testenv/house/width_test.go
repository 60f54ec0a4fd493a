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

// stillWide are files that are rewritten at this time: each leaves the list with the commit that wraps it.
var stillWide = []string{
	"sql/functions/actions.sql", "sql/functions/notify.sql", "sql/functions/search.sql",
	"sql/functions/explain.sql",
	"sql/functions/wait.sql",
	"sql/queries/blockers.sql",
	"sql/queries/caught_up.sql",
	"sql/queries/list_workers.sql",
	"sql/queries/pipeline_catalogue.sql",
	"sql/queries/queue_holders.sql",
	"sql/queries/status_pipelines.sql",
	"sql/queries/status_workers.sql",
	"sql/roles.sql",
	"sql/views/health.sql",
	"sql/views/progress.sql",
	"sql/views/slots.sql",
	"sql/views/status.sql",
	"sql/views/workers.sql",
	"testenv/back.sql",
}

// TestWidth holds SQL, Markdown and HTML templates to the width. Tables and lines with a URL are excepted, and so is
// SQL that is generated.
func TestWidth(t *testing.T) {
	t.Parallel()
	for _, file := range files(t) {
		kind := path.Ext(file)
		if !slices.Contains([]string{".sql", ".md", ".html"}, kind) || strings.Contains(file, "testdata/") ||
			slices.Contains(stillWide, file) {
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
