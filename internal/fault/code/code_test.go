package code

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/errors.md")

// Users note codes and use them in scripts: the catalogue has each code exactly once, with all fields.
func TestCatalogue_HasEveryCode(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Code
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, v := range spec.Values {
				text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, Code(text))
			}
		}
		return true
	})
	var listed []Code
	for _, e := range All() {
		if e.Title == "" || e.Cause == "" || e.Fix == "" || e.Docs == "" {
			t.Errorf("%+v says too little", e)
		}
		if !regexp.MustCompile(`^ES0[0-9]{3}$`).MatchString(string(e.Code)) {
			t.Errorf("%s is no code", e.Code)
		}
		listed = append(listed, e.Code)
	}
	once := slices.Compact(slices.Clone(listed))
	if !slices.Equal(declared, listed) || !slices.IsSorted(listed) || len(once) != len(listed) {
		t.Errorf("declared %v, in the catalogue %v", declared, listed)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Code{
		"ES0307": SlotHeld, "es0307": SlotHeld, " 0307 ": SlotHeld, "307": SlotHeld,
		"": "", "7": "", "ES": "", "ES9999": "", "ES00307": "", "-307": "", "ES030７": "",
	} {
		if got, ok := Find(text); got.Code != want || ok != (want != "") {
			t.Errorf("Find(%q) = %q, %t", text, got.Code, ok)
		}
	}
}

// The documentation has the same text as the program. Other tests check its links, and so those of the catalogue.
func TestCatalogue_IsInThePaper(t *testing.T) {
	t.Parallel()
	const path, mark = "../../../docs/errors.md", "<!-- written by: go test ./internal/fault/code -update -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(content), mark)
	if !ok {
		t.Fatalf("%s has no place for the table", path)
	}
	var b strings.Builder
	b.WriteString(before + mark + "\n| code | is | because | what helps |\n| --- | --- | --- | --- |\n")
	for _, e := range All() {
		link := strings.TrimPrefix(e.Docs, "docs/")
		if strings.HasPrefix(link, "README") {
			link = "../" + link
		}
		fix := strings.ReplaceAll(e.Fix, "|", `\|`)
		b.WriteString("| `" + string(e.Code) + "` | [" + e.Title + "](" + link + ") | " + e.Cause + " | " + fix + " |\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if b.String() != string(content) {
		t.Errorf("%s does not say what the catalogue does: go test ./internal/fault/code -update", path)
	}
}
