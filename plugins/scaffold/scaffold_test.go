package scaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/scaffold"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
)

func checkout(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs a program in a folder.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// passes runs all checks of the contract.
func passes(t *testing.T, options conformance.Options) {
	t.Helper()
	if report := plugins.KeepsContract(t, options); report.Plugin != "my-model" {
		t.Errorf("the plugin calls itself %q", report.Plugin)
	}
}

func TestWrite_Go(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	files, err := scaffold.Write(dir, scaffold.Project{
		Name: "my-model", Language: "go", Version: "v0.0.0",
		Checkout: checkout(t), Go: "1.26",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("%q", files)
	}
	if lines := strings.Count(command(t, dir, "cat", "main.go"), "\n") + 1; lines >= 40 {
		t.Errorf("main.go has %d lines, promised are fewer than 40", lines)
	}
	if out := command(t, dir, "gofmt", "-l", "."); out != "" {
		t.Errorf("not formatted: %s", out)
	}
	command(t, dir, "go", "mod", "tidy")
	command(t, dir, "go", "vet", "./...")
	command(t, dir, "go", "test", "-run", "TestEmbed", "./...")
	command(t, dir, "go", "build", "-o", "embedsidecar-my-model", ".")
	passes(t, conformance.Options{Path: filepath.Join(dir, "embedsidecar-my-model")})
}

func TestWrite_Python(t *testing.T) {
	t.Parallel()
	venv := command(t, checkout(t), "bash", "-c", "tools/python-venv.sh 2>/dev/null")
	python := filepath.Join(venv, "bin", "python3")
	dir := t.TempDir()
	project, site := filepath.Join(dir, "new"), filepath.Join(dir, "site")
	if _, err := scaffold.Write(project, scaffold.Project{
		Name: "my-model", Language: "python",
		Checkout: checkout(t),
	}); err != nil {
		t.Fatal(err)
	}
	sources := filepath.Join(dir, "package")
	if err := os.CopyFS(sources, os.DirFS("../python")); err != nil {
		t.Fatal(err)
	}
	command(t, dir, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--no-build-isolation", "--target", site, sources, project)
	t.Run("its own test", func(t *testing.T) {
		command(t, project, "env", "PYTHONPATH="+site, python, "-m", "unittest")
	})
	passes(t, conformance.Options{
		Path: filepath.Join(site, "bin", "embedsidecar-my-model"),
		Env:  map[string]string{"PYTHONPATH": site},
	})
}

func TestWrite_Mistakes(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir, says string
		project   scaffold.Project
	}{
		"no name":      {t.TempDir(), "no name", scaffold.Project{Language: "go"}},
		"a path":       {t.TempDir(), "no name", scaffold.Project{Name: "../x", Language: "go"}},
		"capitals":     {t.TempDir(), "no name", scaffold.Project{Name: "Mine", Language: "go"}},
		"no language":  {t.TempDir(), "choose from go, python", scaffold.Project{Name: "x", Language: "cobol"}},
		"not empty":    {full, "is not empty", scaffold.Project{Name: "x", Language: "go"}},
		"not a folder": {filepath.Join(full, "precious"), "precious", scaffold.Project{Name: "x", Language: "go"}},
	} {
		if _, err := scaffold.Write(test.dir, test.project); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	if entries, _ := os.ReadDir(full); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
