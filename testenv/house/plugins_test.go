package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// TestCore_KnowsNoPluginByName: the core knows plugins only by their manifests. Package models is exempt, because a
// file format has a plugin's name.
func TestCore_KnowsNoPluginByName(t *testing.T) {
	looked := 0
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.HasPrefix(name, "internal/named/models/") {
			continue
		}
		switch folder, _, _ := strings.Cut(name, "/"); folder {
		case "cmd", "embed", "internal", "queue", "replication":
		default:
			if !strings.HasPrefix(name, "plugins/host/") && !strings.HasPrefix(name, "plugins/manifest/") {
				continue
			}
		}
		looked++
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range manifest.All() {
				if text == m.Name || m.Prefix != "" && strings.Contains(text, m.Prefix) {
					t.Errorf("%s: %q: facts about a plugin belong in its manifest", name, text)
				}
			}
			return true
		})
	}
	if looked < 100 {
		t.Errorf("looked at %d files only", looked)
	}
}
