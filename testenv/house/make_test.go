package house

import (
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// targets returns the Makefile's targets with their help lines.
func targets(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+):[^=\n]*?(?:## (.*))?$`).FindAllStringSubmatch(read(t,
		"Makefile"), -1) {
		found[match[1]] = match[2]
	}
	return found
}

// TestMakefileTargets checks that every target has a help line and is declared .PHONY.
func TestMakefileTargets(t *testing.T) {
	t.Parallel()
	documented := targets(t)
	for name, line := range documented {
		if line == "" {
			t.Errorf("make %s has no ## line", name)
		}
	}
	phony := strings.Fields(regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(read(t, "Makefile"))[1])
	for _, name := range phony {
		if _, ok := documented[name]; !ok {
			t.Errorf(".PHONY names %s, which is no target", name)
		}
	}
	for name := range documented {
		if !slices.Contains(phony, name) {
			t.Errorf(".PHONY lacks %s", name)
		}
	}

	help, err := exec.Command("make", "--no-print-directory", "-C", root, "help").CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, help)
	}
	for name := range documented {
		if !regexp.MustCompile(`(?m)^  ` + name + ` `).Match(help) {
			t.Errorf("make help does not show %s", name)
		}
	}
}

// TestNamedTargets checks that the make targets and scripts that documentation and scripts call exist.
func TestNamedTargets(t *testing.T) {
	t.Parallel()
	documented := targets(t)
	call := regexp.MustCompile("(?m)(?:`|^ *(?:step [a-z-]+ )?|#   |&& )make ((?:[A-Z_]+=\\S+ )*)([a-z]+(?:-[a-z]+)*)")
	script := regexp.MustCompile(`\btools/[a-z_-]+\.(?:sh|py|awk)\b`)
	for _, name := range append(papers(t), "Makefile", ".ci/run", "Dockerfile", ".golangci.yml") {
		content := read(t, name)
		for _, match := range call.FindAllStringSubmatch(content, -1) {
			if _, ok := documented[match[2]]; !ok {
				t.Errorf("%s calls make %s, which is no target", name, match[2])
			}
		}
		for _, path := range script.FindAllString(content, -1) {
			if !exists(path) {
				t.Errorf("%s names %s, which does not exist", name, path)
			}
		}
	}
}

// TestScripts checks that every shell script parses and stops at the first error, and that one with #! is executable.
func TestScripts(t *testing.T) {
	t.Parallel()
	strict := regexp.MustCompile(`(?m)^set -(eu|E?euo pipefail)$`)
	source := regexp.MustCompile(`(?m)^\. .*\.sh"$`)
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".sh") && name != ".ci/run" {
			continue
		}
		path := filepath.Join(root, name)
		content := read(t, name)
		if out, err := exec.Command("bash", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if !strings.HasPrefix(content, "#!") {
			continue // sourced: whoever sources it has set that
		}
		if !strict.MatchString(content) && !source.MatchString(content) {
			t.Errorf("%s lacks set -euo pipefail", name)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o111 == 0 {
			t.Errorf("%s begins with #! and has mode %s: make it executable", name, info.Mode())
		}
	}
}

// TestExampleTexts checks the texts of the demo: enough of them, unique, in order, and valid CSV.
func TestExampleTexts(t *testing.T) {
	t.Parallel()
	rows, err := csv.NewReader(strings.NewReader(read(t, "examples/debian-packages.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"id", "name", "section", "summary"}; !slices.Equal(rows[0], want) {
		t.Fatalf("columns %q, want %q", rows[0], want)
	}
	rows = rows[1:]
	if len(rows) < 5000 {
		t.Errorf("%d texts, want at least 5,000", len(rows))
	}
	summaries := map[string]string{}
	for i, row := range rows {
		id, name, summary := row[0], row[1], row[3]
		if id != strconv.Itoa(i+1) {
			t.Fatalf("row %d has id %s", i+1, id)
		}
		if i > 0 && name <= rows[i-1][1] {
			t.Errorf("row %s: %s does not come after %s", id, name, rows[i-1][1])
		}
		if len(summary) < 4 || !utf8.ValidString(summary) || strings.ContainsAny(summary, "\x00\r\n\t") {
			t.Errorf("row %s: unusable summary %q", id, summary)
		}
		if other, ok := summaries[strings.ToLower(summary)]; ok {
			t.Errorf("%s and %s have the same summary", other, name)
		}
		summaries[strings.ToLower(summary)] = name
	}
	for _, name := range []string{"gimp", "krita", "darktable", "vlc", "postgresql"} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[1] == name }) {
			t.Errorf("%s is missing: a question of the demo is about it", name)
		}
	}
	attribution := read(t, "examples/ATTRIBUTION.md")
	for _, want := range []string{"debian-packages.csv", "make_csv.py", "Debian 12"} {
		if !strings.Contains(attribution, want) {
			t.Errorf("examples/ATTRIBUTION.md lacks %s", want)
		}
	}
}
