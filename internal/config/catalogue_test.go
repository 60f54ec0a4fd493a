package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTrust_TheLockOfACatalogueIsNoLink: in a folder that others can write to, a link may have its name, and would make
// a file elsewhere.
func TestTrust_TheLockOfACatalogueIsNoLink(t *testing.T) {
	t.Parallel()
	list, elsewhere := filepath.Join(t.TempDir(), "catalog.yaml"), filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Symlink(elsewhere, list+".lock"); err != nil {
		t.Fatal(err)
	}
	err := ChangeCatalogue(list, false, func(all []Plugin) ([]Plugin, error) { return all, nil })
	if _, made := os.Stat(elsewhere); err == nil || made == nil {
		t.Errorf("changed: %v; the link made a file: %t", err, made == nil)
	}
}
