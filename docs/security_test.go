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
	for block := range strings.SplitSeq(strings.ReplaceAll(page, "\n- ", "\n\n- "), "\n\n") {
		if strings.HasPrefix(block, "- ") && !strings.Contains(block, "[Test") {
			t.Errorf("nothing shows: %s", block)
		}
	}
	titles := map[string]bool{}
	for _, title := range regexp.MustCompile(`(?m)^## .*$`).FindAllString(page, -1) {
		if who := strings.TrimSuffix(title, "'s author"); titles[who] {
			t.Errorf("the page tells twice of %s", title)
		} else {
			titles[who] = true
		}
	}
}
