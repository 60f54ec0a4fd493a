// Package docs checks that the papers say what the program does: names of metrics, commands and statuses, and that
// configurations shown in them load.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// programs is the folder that holds bin/ as a clone does after make build, with the fake plugin instead of a real one.
var programs string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "docs")
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, source := range map[string]string{
		"embedsidecar":              "./cmd/embedsidecar",
		"plugins/embedsidecar-fake": "./plugins/fake",
	} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "bin", name), source)
		build.Dir = ".."
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "docs: build %s: %v\n%s", source, err, out)
			return 1
		}
	}
	programs = dir
	return testenv.Main(m)
}

// blocks returns the fenced blocks of one language.
func blocks(paper, language string) []string {
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(paper, -1) {
		found = append(found, match[1])
	}
	return found
}

// TestMetrics compares metrics.md with the names and labels that the program has, as package metrics keeps them in a
// golden file.
func TestMetrics(t *testing.T) {
	t.Parallel()
	paper := read(t, "metrics.md")
	row := regexp.MustCompile("(?m)^\\| `(embedsidecar_[a-z_]+)` \\| (gauge|counter|histogram), ((?:`[a-z]+` ?)+) \\|")
	documented := map[string]string{}
	for _, match := range row.FindAllStringSubmatch(paper, -1) {
		labels := strings.Fields(strings.ReplaceAll(match[3], "`", ""))
		slices.Sort(labels)
		documented[match[1]] = match[2] + " " + strings.Join(labels, " ")
	}
	known := map[string]string{}
	var name, kind string
	label := regexp.MustCompile(`([a-z]+)=`)
	for line := range strings.Lines(read(t, "../internal/base/metrics/testdata/names.txt")) {
		if fields := strings.Fields(line); !strings.HasPrefix(line, " ") {
			name, kind = fields[0], fields[1]
			continue
		}
		var labels []string
		for _, match := range label.FindAllStringSubmatch(line, -1) {
			labels = append(labels, match[1])
		}
		slices.Sort(labels)
		known[name] = kind + " " + strings.Join(labels, " ")
	}
	for name, is := range known {
		if documented[name] != is {
			t.Errorf("%s is %q; metrics.md says %q", name, is, documented[name])
		}
	}
	for name := range documented {
		if _, ok := known[name]; !ok {
			t.Errorf("metrics.md tells of %s, which does not exist", name)
		}
	}
	for _, name := range regexp.MustCompile(`embedsidecar_[a-z_]+[a-z]`).FindAllString(paper, -1) {
		if _, ok := known[strings.TrimSuffix(name, "_bucket")]; !ok {
			t.Errorf("metrics.md names %s, which does not exist", name)
		}
	}
}

// TestConfigurations loads every configuration that a paper shows.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for _, paper := range []string{
		"configuration.md", "plugins.md", "running-plugins.md", "search.md", "chunking.md", "bring-your-vectors.md",
		"change-the-model.md", "remote.md", "scaling.md",
	} {
		files := blocks(read(t, paper), "yaml")
		if len(files) == 0 {
			t.Errorf("%s shows no configuration", paper)
		}
		for _, content := range files {
			path := filepath.Join(t.TempDir(), "embedsidecar.yaml")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			c, warnings, err := config.Load(config.Source{
				Flags:   map[string][]string{"config": {path}},
				Environ: []string{"DATABASE_URL=postgres://app@localhost/mydb"},
			})
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s: %v %v\n%s", paper, err, warnings, content)
			} else if len(c.Pipelines) == 0 && len(c.Models) == 0 {
				t.Errorf("%s: neither pipelines nor models in\n%s", paper, content)
			}
		}
	}
}

// TestSpecs reads the one-line forms of pipelines that configuration.md shows.
func TestSpecs(t *testing.T) {
	t.Parallel()
	specs := regexp.MustCompile(`--pipeline '([^']+)'`).FindAllStringSubmatch(read(t, "configuration.md"), -1)
	if len(specs) < 2 {
		t.Fatalf("found %d", len(specs))
	}
	for _, match := range specs {
		if _, err := config.ParsePipeline(match[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestCommands checks that every command and flag a paper names exists.
func TestCommands(t *testing.T) {
	t.Parallel()
	program := filepath.Join(programs, "bin", "embedsidecar")
	help := func(args ...string) string {
		out, err := exec.Command(program, append([]string{"help"}, args...)...).Output()
		if err != nil {
			t.Fatalf("embedsidecar help %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	commands := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^  ([a-z-]+(?: [a-z-]+)?)(?:, [a-z]+)?  +\S`).FindAllStringSubmatch(help(),
		-1) {
		commands[match[1]] = help(strings.Fields(match[1])...)
	}
	if len(commands) < 8 {
		t.Fatalf("found only %d commands", len(commands))
	}
	call := regexp.MustCompile(`(?:^|[\s` + "`" + `(])(?:bin/)?embedsidecar ([a-z-]+)([^\n` + "`" + `#&|]*)`)
	flag := regexp.MustCompile(`\s(--[a-z][a-z0-9-]*)`)
	for _, paper := range []string{
		"../README.md", "configuration.md", "roles.md", "promises.md", "operations.md", "plugins.md",
		"running-plugins.md", "search.md", "metrics.md", "architecture.md", "models.md", "chunking.md",
		"remote.md", "scaling.md", "containers.md", "systemd.md", "sql.md", "errors.md", "states.md",
		"dashboard.md", "tracing.md", "bring-your-vectors.md", "from-pgai.md",
		"change-the-model.md", "joins.md",
	} {
		content := strings.ReplaceAll(read(t, paper), "\\\n", " ")
		code := strings.Join(append(blocks(content, "sh"), inline(content)...), "\n")
		for _, match := range call.FindAllStringSubmatch(code, -1) {
			name := match[1]
			if name == "help" {
				continue
			}
			text, ok := commands[name]
			if words := strings.Fields(match[2]); !ok && len(words) > 0 { // of a family
				name += " " + words[0]
				text, ok = commands[name]
			}
			if !ok {
				t.Errorf("%s names the command %q, which does not exist", paper, name)
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(match[2], -1) {
				if !regexp.MustCompile(`(?m)(^|\s)` + f[1] + `\b`).MatchString(text) {
					t.Errorf("%s: %s has no flag %s", paper, name, f[1])
				}
			}
		}
	}
}

// inline returns the words set as code outside of blocks.
func inline(paper string) []string {
	paper = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(paper, "")
	var found []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(paper, -1) {
		found = append(found, strings.ReplaceAll(match[1], "\n", " "))
	}
	return found
}

// TestPluginGuide: the plugin that the guide shows is the SDK's example, which goes through every check of the
// contract beside its source, and it answers as the guide calls it.
func TestPluginGuide(t *testing.T) {
	t.Parallel()
	sources := blocks(read(t, "plugins.md"), "go")
	if len(sources) != 1 {
		t.Fatalf("found %d", len(sources))
	}
	if diff := cmp.Diff(read(t, "../plugins/sdk/example/main.go"), sources[0]); diff != "" {
		t.Errorf("the example is not what the guide shows (-example +guide):\n%s", diff)
	}
	plugin := filepath.Join(t.TempDir(), "embedsidecar-example")
	build := exec.Command("go", "build", "-o", plugin, "../plugins/sdk/example")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := filepath.Join(programs, "bin", "embedsidecar")
	out, err := exec.Command(program, "embed", "--plugin", plugin, "--model", "example", "a text").CombinedOutput()
	if err != nil || strings.Count(string(out), "1") != 2 || strings.Count(string(out), "0") != 62 { // two words
		t.Errorf("%v\n%s", err, out)
	}
}

// TestQuickStart runs the README's three commands as they are written, on a table as it describes. Only the database
// is another, the embedder the fake one, and run ends by itself.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	const first = "export EMBEDSIDECAR_DATABASE_URL="
	var script string
	for _, block := range blocks(read(t, "../README.md"), "sh") {
		if strings.HasPrefix(block, first) {
			script = block
		}
	}
	begin, run := strings.Index(script, "\n"), "embedsidecar run "
	if begin < 0 || strings.Count(script, run) != 1 {
		t.Fatalf("the README has no quick start that this test knows:\n%s", script)
	}
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, title text, body text)`)
	db.MustExec(`INSERT INTO public.docs VALUES (1, 'Password', 'how to reset it'), (2, 'Invoices', 'where they are'), (3,
	'', NULL)`)
	command := exec.Command("sh", "-eu", "-c", strings.Replace(script[begin:], run, run+"--once ", 1))
	command.Dir = programs
	command.Env = append(os.Environ(), "EMBEDSIDECAR_DATABASE_URL="+db.URL(""), "EMBEDSIDECAR_PLUGIN=fake",
		"EMBEDSIDECAR_SLOT="+db.SlotName(),
		"PATH="+db.Server.Bin()+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "Password how to reset it") {
		t.Errorf("no answer:\n%s", out)
	}
	rows := testenv.Values[int64](db,
		`SELECT d.id FROM public.docs AS d JOIN public.docs_embedding AS e USING (id) ORDER BY 1`)
	if !slices.Equal(rows, []int64{1, 2}) {
		t.Errorf("rows with a vector: %v", rows)
	}
}
