package owned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestTrust_NobodyElsePutsAFileThere: neither in a folder on the way to it, nor behind a link; in a folder with the
// sticky bit, files of its own user are safe.
func TestTrust_NobodyElsePutsAFileThere(t *testing.T) {
	t.Parallel()
	const sticky = fs.ModeSticky | 0o777
	us := uint32(os.Geteuid())
	for name, tt := range map[string]struct {
		modes    map[string]fs.FileMode // of what exists, by path
		path     string
		user     uint32
		refused  string // the path in the error; "": none
		readOnly bool
	}{
		"ours":                {path: "a/b/file"},
		"of root":             {path: "/etc/passwd", user: 1},
		"through dots":        {path: "a/b/../b/./file"},
		"written by all":      {path: "a/b/file", modes: map[string]fs.FileMode{"a/b/file": 0o666}, refused: "a/b/file"},
		"in a folder of all":  {path: "a/b/file", modes: map[string]fs.FileMode{"a/b": 0o777}, refused: "a/b/file"},
		"further up":          {path: "a/b/file", modes: map[string]fs.FileMode{"a": 0o777}, refused: "a/b"},
		"further up, by dots": {path: "a/b/../../c/file", modes: map[string]fs.FileMode{"a": 0o777}, refused: "a/b"},
		"out of a folder":     {path: "a/../c/file", modes: map[string]fs.FileMode{"a": 0o777}},
		"beside a link":       {path: "folder/../b/file", modes: map[string]fs.FileMode{"a/b": 0o777}, refused: "a/b/file"},
		"mounted for reading": {
			path: "a/b/file", modes: map[string]fs.FileMode{"a": 0o777, "a/b/file": 0o666}, readOnly: true,
		},
		"sticky":             {path: "a/b/file", modes: map[string]fs.FileMode{"a": sticky, "a/b": sticky}},
		"a link":             {path: "link", modes: map[string]fs.FileMode{"a/b": 0o777}, refused: "a/b/file"},
		"a link in a folder": {path: "a/b/back", modes: map[string]fs.FileMode{"a/b": 0o777}, refused: "a/b/back"},
		"links to folders":   {path: "folder/back", modes: map[string]fs.FileMode{"a": 0o777}, refused: "a/b"},
		"a link and back":    {path: "a/b/back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, err := range []error{
				os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), os.Mkdir(filepath.Join(dir, "c"), 0o755),
				os.WriteFile(filepath.Join(dir, "a/b/file"), nil, 0o600), os.WriteFile(filepath.Join(dir, "c/file"), nil, 0o600),
				os.Symlink(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "link")),
				os.Symlink("../../c/file", filepath.Join(dir, "a/b/back")), os.Symlink("a/b", filepath.Join(dir, "folder")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for path, mode := range tt.modes {
				if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
					t.Fatal(err)
				}
			}
			path := tt.path
			if !filepath.IsAbs(path) {
				path = dir + "/" + path
			}
			if tt.user == 0 {
				tt.user = us
			}
			err := check(path, tt.user, func(string) bool { return tt.readOnly })
			refused, ok := errors.AsType[*Error](err)
			if ok != (tt.refused != "") || !ok && err != nil || ok && refused.Path != filepath.Join(dir, tt.refused) {
				t.Errorf("%v, want one of %q", err, tt.refused)
			}
		})
	}

	// In a folder with the sticky bit: a file and a folder of another user, and another user's folder.
	if us == 0 {
		dir := t.TempDir()
		for _, path := range []string{"file", "folder/file"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, sticky); err != nil {
			t.Fatal(err)
		}
		const another = 12345
		for _, tt := range []struct{ path, owned, refused string }{
			{"file", "file", "file"},
			{"folder/file", "folder/file", ""},
			{"folder/file", "folder", "folder"},
			{"file", "", "file"},
		} {
			owned := filepath.Join(dir, tt.owned)
			if err := os.Chown(owned, another, -1); err != nil {
				t.Fatal(err)
			}
			err := check(filepath.Join(dir, tt.path), 0, readOnly)
			refused, ok := errors.AsType[*Error](err)
			if ok != (tt.refused != "") || !ok && err != nil || ok && refused.Path != filepath.Join(dir, tt.refused) {
				t.Errorf("%s, where %q is another's: %v", tt.path, tt.owned, err)
			}
			if err := check(filepath.Join(dir, tt.path), another, readOnly); err != nil {
				t.Errorf("%s, for that user: %v", tt.path, err)
			}
			if err := os.Chown(owned, 0, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
}
