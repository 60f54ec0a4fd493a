package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurity_EachSentenceHasItsTest: the tests that docs/security.md names in brackets are there.
func TestSecurity_EachSentenceHasItsTest(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range declared.FindAllStringSubmatch(read(t, path), -1) {
			there[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "security.md")
	named := regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(page, -1)
	const fewest = 15
	if len(named) < fewest {
		t.Errorf("the page names %d tests, want %d at least", len(named), fewest)
	}
	for _, name := range named {
		if !there[name] {
			t.Errorf("there is no test %s", name)
		}
	}
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, "- ") && !strings.Contains(line, "[Test") {
			t.Errorf("nothing shows: %s", line)
		}
	}
}
