package house

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// largestKnot is the largest allowed number of files in a dependency cycle within a package. Functions, types,
// variables and constants count.
const largestKnot = 6

// TestPackages_AreNoKnots limits dependency cycles between the files of a package.
func TestPackages_AreNoKnots(t *testing.T) {
	t.Parallel()
	folders := map[string]bool{}
	for _, name := range files(t) {
		if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
			folders[path.Dir(name)] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		for _, knot := range knots(names(t, folder)) {
			if len(knot) > largestKnot {
				t.Errorf("%s: a dependency cycle of %d files, more than %d: %s", folder, len(knot), largestKnot,
					strings.Join(knot, " "))
			}
		}
	}
}

// names returns for each file of a package the files whose declarations it uses. Methods and fields do not count.
func names(t *testing.T, folder string) map[string][]string {
	t.Helper()
	whole := filepath.Join(root, filepath.FromSlash(folder))
	of, err := build.ImportDir(whole, 0)
	if err != nil {
		return nil // tests alone, or files for another system
	}
	set := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range append(of.GoFiles, of.CgoFiles...) {
		file, err := parser.ParseFile(set, filepath.Join(whole, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	// Other packages need not be resolved.
	checks := types.Config{Importer: nothing{}, FakeImportC: true, Error: func(error) {}}
	pkg, _ := checks.Check(folder, set, parsed, info)
	found := map[string][]string{}
	for used, object := range info.Uses {
		if object.Parent() != pkg.Scope() {
			continue
		}
		from, to := set.File(used.Pos()).Name(), set.File(object.Pos()).Name()
		if from != to && !slices.Contains(found[from], to) {
			found[from] = append(found[from], to)
		}
	}
	return found
}

// nothing imports packages that are empty.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}

// knots returns the cycles of files: each file that depends on itself, with the others of its cycle.
func knots(named map[string][]string) (found [][]string) {
	reach := map[string]map[string]bool{}
	for file := range named {
		reach[file] = map[string]bool{}
		for next := slices.Clone(named[file]); len(next) > 0; {
			at := next[0]
			next = next[1:]
			if !reach[file][at] {
				reach[file][at] = true
				next = append(next, named[at]...)
			}
		}
	}
	tied := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(reach)) {
		if tied[file] || !reach[file][file] {
			continue
		}
		var knot []string
		for _, other := range slices.Sorted(maps.Keys(reach[file])) {
			if reach[other][file] {
				knot = append(knot, filepath.Base(other))
				tied[other] = true
			}
		}
		found = append(found, knot)
	}
	return found
}

// TestKnots tests the function knots.
func TestKnots(t *testing.T) {
	t.Parallel()
	got := knots(map[string][]string{"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}})
	if len(got) != 2 || !slices.Equal(got[0], []string{"a", "b", "c"}) || !slices.Equal(got[1], []string{"d", "e"}) {
		t.Errorf("found %v, want a b c and d e", got)
	}
	if len(names(t, "internal/engine/worker")) < 10 {
		t.Error("the files of internal/engine/worker name nothing of each other")
	}
}
