package house

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files that lie in the root (and .git, in a second work tree), each for somebody who looks for it there.
// Whatever else lies there was left by mistake.
var rootFiles = []string{
	".dockerignore", ".editorconfig", ".gitignore", ".golangci.yml", ".hadolint.yaml", ".yamllint", "CHANGELOG.md",
	"Dockerfile",
	"LICENSE", "Makefile", "README.md", "SECURITY.md", "docker-compose.existing.yml", "docker-compose.yml", "go.mod",
	"go.sum",
}

// The folders of the root: programs, what they are made of by name, what others build on (plugins), and what is no
// code. All other packages are internal: nobody can import them, so they may change.
var rootFolders = []string{
	".ci", "bench", "cmd", "deploy", "docs", "embed", "examples", "internal", "plugins", "queue", "replication", "sql",
	"testenv", "tools",
}

func TestRoot_HoldsNothingElse(t *testing.T) {
	for _, name := range files(t) {
		folder, _, inside := strings.Cut(name, "/")
		if inside && !slices.Contains(rootFolders, folder) {
			t.Errorf("%s: the folder %s lies in the root: a package belongs under internal/", name, folder)
		}
		if name != ".git" && !inside && !slices.Contains(rootFiles, name) {
			t.Errorf("%s lies in the root: put it where it belongs, or, if it belongs there, into the list of this test", name)
		}
	}
	for _, name := range slices.Concat(rootFiles, rootFolders) {
		if !exists(name) {
			t.Errorf("there is no %s in the root any more: take it out of the list of this test", name)
		}
	}
}

// TestFiles_AreSources: what somebody built lies outside of the repository, or .gitignore names it.
func TestFiles_AreSources(t *testing.T) {
	const most = 1 << 20
	for _, name := range files(t) {
		info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			t.Errorf("%s has %d bytes: what is built, fetched or measured does not lie beside its sources", name, info.Size())
		}
	}
}
