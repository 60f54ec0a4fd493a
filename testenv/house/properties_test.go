package house

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitecture_NamesTheTestOfEachProperty: what is said to be proven is proven by a test that is there, and every
// test of a property stands in the table.
func TestArchitecture_NamesTheTestOfEachProperty(t *testing.T) {
	t.Parallel()
	_, after, ok := strings.Cut(read(t, "docs/architecture.md"), "Properties that hold for every history")
	if !ok {
		t.Fatal("docs/architecture.md has no table of properties")
	}
	var named []string // folder and test
	for _, match := range regexp.MustCompile("`(Test\\w+)`\\s+\\(`([\\w/]+)`\\)").FindAllStringSubmatch(after, -1) {
		named = append(named, match[2]+" "+match[1])
	}
	var there []string
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, file := range files(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := file[:max(strings.LastIndexByte(file, '/'), 0)]
		for _, match := range declared.FindAllStringSubmatch(read(t, file), -1) {
			there = append(there, folder+" "+match[1])
			if strings.HasPrefix(match[1], "TestProperty_") && !slices.Contains(named, folder+" "+match[1]) {
				t.Errorf("the table of properties leaves out %s of %s", match[1], folder)
			}
		}
	}
	const least = 9
	if len(named) < least {
		t.Fatalf("the table names only %q", named)
	}
	for _, name := range named {
		if !slices.Contains(there, name) {
			t.Errorf("there is no test %s", name)
		}
	}
}
