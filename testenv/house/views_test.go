package house

import (
	"regexp"
	"strings"
	"testing"
)

// TestQueries_ReadNoViews: sessions of the program refuse views on servers that support this, so no query may read one.
func TestQueries_ReadNoViews(t *testing.T) {
	t.Parallel()
	made, comment := regexp.MustCompile(`VIEW embedsidecar\.(\w+) AS`), regexp.MustCompile(`--[^\n]*`)
	var views []string
	for _, file := range files(t) {
		if strings.HasPrefix(file, "sql/views/") {
			for _, found := range made.FindAllStringSubmatch(read(t, file), -1) {
				views = append(views, found[1])
			}
		}
	}
	if len(views) < 10 {
		t.Fatalf("found the views %v alone", views)
	}
	reads := regexp.MustCompile(`(?:FROM|JOIN|,)\s+embedsidecar\.(?:` + strings.Join(views, "|") + `)\b[^(]`)
	for _, file := range files(t) {
		if strings.HasPrefix(file, "sql/queries/") {
			if found := reads.FindString(comment.ReplaceAllString(read(t, file), "")); found != "" {
				t.Errorf("%s reads a view: %s", file, found)
			}
		}
	}
}
