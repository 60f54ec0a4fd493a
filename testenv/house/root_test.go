package house

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rootFiles are the files allowed in the root, including .git of a second work tree.
var rootFiles = []string{
	".dockerignore", ".editorconfig", ".gitignore", ".golangci.yml", ".hadolint.yaml", ".yamllint", "CHANGELOG.md",
	"Dockerfile",
	"LICENSE", "Makefile", "README.md", "SECURITY.md", "docker-compose.existing.yml", "docker-compose.yml", "go.mod",
	"go.sum",
}

// rootFolders are the folders allowed in the root. Packages that other modules need not import are internal.
var rootFolders = []string{
	".ci", "bench", "cmd", "deploy", "docs", "embed", "examples", "internal", "plugins", "queue", "replication", "sql",
	"testenv", "tools",
}

func TestRoot_HoldsNothingElse(t *testing.T) {
	for _, name := range files(t) {
		folder, _, inside := strings.Cut(name, "/")
		if inside && !slices.Contains(rootFolders, folder) {
			t.Errorf("%s: the folder %s is in the root: a package belongs under internal/", name, folder)
		}
		if name != ".git" && !inside && !slices.Contains(rootFiles, name) {
			t.Errorf("%s is in the root: move it, or add it to the list of this test", name)
		}
	}
	for _, name := range slices.Concat(rootFiles, rootFolders) {
		if !exists(name) {
			t.Errorf("%s is no longer in the root: remove it from the list of this test", name)
		}
	}
}

// TestFiles_AreSources: build outputs are outside the repository or in .gitignore.
func TestFiles_AreSources(t *testing.T) {
	const most = 1 << 20
	for _, name := range files(t) {
		info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			t.Errorf("%s has %d bytes: outputs and downloads do not belong beside the sources", name, info.Size())
		}
	}
}
