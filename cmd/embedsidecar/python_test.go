package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv/canary"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// TestEmbed_APythonPluginsFailureIsOneRecord: the record has the place and the calls, but not the text in the message.
func TestEmbed_APythonPluginsFailureIsOneRecord(t *testing.T) {
	t.Parallel()
	clone, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	venv, err := exec.CommandContext(t.Context(), filepath.Join(clone, "tools", "python-venv.sh")).Output()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), "embedsidecar-broken")
	source := "#!" + filepath.Join(strings.TrimSpace(string(venv)), "bin", "python3") + `
import sys

sys.path.insert(0, "` + filepath.Join(clone, "plugins", "python") + `")
from embedsidecar_embedder import serve_function


def deeper(texts):
    raise RuntimeError(texts[0])


def embed(texts):
    return deeper(texts)


serve_function(embed, name="broken", version="1.0.0", dims=8, fingerprint="broken:1")
`
	if err := programs.Write(plugin, []byte(source)); err != nil {
		t.Fatal(err)
	}
	dir, err := plugins()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "embedsidecar", "embed", "--plugin", plugin, "--model", "broken", canary.Text)
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + filepath.Dir(dir),
		"GOCOVERDIR=" + coverDir(t.TempDir()),
	}
	out, err := c.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := len(lines) - 2 // the last one says where to read more
	if err == nil || last < 1 || !strings.HasPrefix(lines[last], "embedsidecar: error ES0606: ") ||
		!strings.HasSuffix(lines[last], "RuntimeError in embed at embedsidecar-broken:9") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range lines[:last] { // one for each try
		if !strings.Contains(line, `"line":"RuntimeError in embed at embedsidecar-broken:9"`) ||
			!strings.Contains(line, "embedsidecar-broken:13 embed, embedsidecar-broken:9 deeper") {
			t.Errorf("a record more: %s", line)
		}
	}
	if !canary.Search(t.Name(), out) {
		t.Errorf("a text shows: %s", out)
	}
}
