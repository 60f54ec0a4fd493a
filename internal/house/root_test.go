package house

import (
	"slices"
	"strings"
	"testing"
)

// The files that lie in the root (and .git, in a second work tree), each for somebody who looks for it there. Whatever else lies there was left by mistake.
var rootFiles = []string{
	".dockerignore", ".editorconfig", ".gitignore", ".golangci.yml", ".hadolint.yaml", ".yamllint", "CHANGELOG.md", "Dockerfile",
	"LICENSE", "Makefile", "README.md", "docker-compose.existing.yml", "docker-compose.yml", "go.mod", "go.sum",
}

func TestRoot_HoldsNothingElse(t *testing.T) {
	for _, name := range files(t) {
		if name != ".git" && !strings.Contains(name, "/") && !slices.Contains(rootFiles, name) {
			t.Errorf("%s lies in the root: put it where it belongs, or, if it belongs there, into the list of this test", name)
		}
	}
	for _, name := range rootFiles {
		if !exists(name) {
			t.Errorf("there is no %s in the root any more: take it out of the list of this test", name)
		}
	}
}
