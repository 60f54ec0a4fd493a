package house

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitecture_NamesTheTestOfEachProperty: the table of properties names existing tests, and every test of a
// property.
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
	there := tests(t)
	for _, name := range there {
		if strings.Contains(name, " TestProperty_") && !slices.Contains(named, name) {
			t.Errorf("the table of properties leaves out %s", name)
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

// TestLong_NamesTests: the tests that only make test-all runs exist, and are listed once.
func TestLong_NamesTests(t *testing.T) {
	t.Parallel()
	const most = 340 // make test is what everybody runs
	_, list, _ := strings.Cut(read(t, "testenv/long.txt"), "\n")
	long, there := strings.Fields(list), tests(t)
	if len(long) > most || !slices.IsSorted(long) || len(slices.Compact(slices.Clone(long))) != len(long) {
		t.Errorf("%d names: want at most %d, in order, each once", len(long), most)
	}
	for _, name := range long {
		if !slices.ContainsFunc(there, func(test string) bool { return strings.HasSuffix(test, " "+name) }) {
			t.Errorf("there is no test %s", name)
		}
	}
}

// tests returns the tests of all modules, each as its folder and its name.
func tests(t *testing.T) (all []string) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, file := range files(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := file[:max(strings.LastIndexByte(file, '/'), 0)]
		for _, match := range declared.FindAllStringSubmatch(read(t, file), -1) {
			all = append(all, folder+" "+match[1])
		}
	}
	return all
}
