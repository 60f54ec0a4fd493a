package house

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one instruction of a Dockerfile, without comments and with continued lines joined.
type instruction struct {
	name  string
	flags []string
	args  []string
	text  string // all after the name
}

func (i instruction) flag(name string) string {
	for _, flag := range i.flags {
		if value, ok := strings.CutPrefix(flag, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

func dockerfile(t *testing.T) []instruction {
	t.Helper()
	var all []instruction
	var pending string
	for line := range strings.Lines(read(t, "Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if rest, ok := strings.CutSuffix(line, "\\"); ok {
			pending += rest + " "
			continue
		}
		name, text, _ := strings.Cut(strings.TrimSpace(pending+line), " ")
		pending = ""
		found := instruction{name: name, text: strings.TrimSpace(text)}
		for word := range strings.FieldsSeq(text) {
			if strings.HasPrefix(word, "--") && len(found.args) == 0 {
				found.flags = append(found.flags, word)
			} else {
				found.args = append(found.args, word)
			}
		}
		all = append(all, found)
	}
	if pending != "" {
		t.Fatalf("the Dockerfile ends with a continued line: %s", pending)
	}
	return all
}

// ignored reports whether .dockerignore excludes a path of the repository from the build.
func ignored(t *testing.T, name string) (out bool) {
	t.Helper()
	for line := range strings.Lines(read(t, ".dockerignore")) {
		pattern := strings.TrimSpace(line)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		pattern, back := strings.CutPrefix(pattern, "!") // what comes last counts
		last, anywhere := strings.CutPrefix(pattern, "**/")
		for part := name; part != "."; part = path.Dir(part) {
			subject := part
			if anywhere {
				subject = path.Base(part)
			}
			matched, err := path.Match(last, subject)
			if err != nil {
				t.Fatalf(".dockerignore: %s: %v", pattern, err)
			}
			if matched {
				out = !back
			}
		}
	}
	return out
}

// embedded returns the files that a Go file embeds.
func embedded(t *testing.T, name string) (found []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`(?m)^//go:embed (.+)$`).FindAllStringSubmatch(read(t, name), -1) {
		for pattern := range strings.FieldsSeq(match[1]) {
			for _, file := range files(t) {
				inside := path.Join(path.Dir(name), strings.TrimPrefix(pattern, "all:"))
				if matched, err := path.Match(inside, file); err != nil {
					t.Fatalf("%s: %s: %v", name, pattern, err)
				} else if matched || strings.HasPrefix(file, inside+"/") {
					found = append(found, file)
				}
			}
		}
	}
	return found
}

// TestDockerfileCopies checks that the source of every COPY exists, in the repository or in an earlier stage.
func TestDockerfileCopies(t *testing.T) {
	t.Parallel()
	// The outputs of the stages: the Makefile's programs, and the scripts' files in the cache.
	built := map[string][]string{
		"build": {
			"/src/bin/embedsidecar", "/src/bin/plugins/embedsidecar-remote",
			"/src/bin/plugins/embedsidecar-static",
		},
		"build-onnx": {"/src/bin/plugins/embedsidecar-onnx"},
		"model":      {"/cache/embedsidecar/onnxruntime/", "/cache/embedsidecar/models/"},
		"tokenizers": {"/src/plugins/onnx/tokenizers/"},
		"system": {
			"/rootfs/core/", "/rootfs/onnx/", "/rootfs/core/var/lib/dpkg/status.d/",
			"/rootfs/onnx/var/lib/dpkg/status.d/",
		},
		"bill":      {"/bill/"},
		"bill-onnx": {"/bill/"},
	}
	for _, tree := range built["system"][:2] {
		if !strings.Contains(read(t, "tools/rootfs.sh"), strings.TrimSuffix(tree, "/")) {
			t.Errorf("tools/rootfs.sh makes no %s", tree)
		}
	}
	for _, product := range slices.Concat(built["build"], built["build-onnx"]) {
		if name := strings.TrimPrefix(product, "/src/"); !strings.Contains(read(t, "Makefile"), "-o "+name+" ") {
			t.Errorf("the Makefile does not build %s", name)
		}
	}
	for folder, script := range map[string]string{
		"onnxruntime": "tools/fetch-onnxruntime.sh",
		"models":      "tools/fetch-model.sh",
	} {
		if !strings.Contains(read(t, script), "$cache/"+folder) {
			t.Errorf("%s does not put anything into the cache's folder %s", script, folder)
		}
	}

	var stages []string
	for _, i := range dockerfile(t) {
		switch i.name {
		case "FROM":
			if len(i.args) == 3 && strings.EqualFold(i.args[1], "as") {
				stages = append(stages, i.args[2])
			}
		case "COPY", "ADD":
			sources := i.args[:len(i.args)-1]
			if i.name == "ADD" {
				t.Errorf("ADD %s: use COPY", i.text)
			}
			if from := i.flag("from"); from != "" {
				if !slices.Contains(stages, from) {
					t.Errorf("COPY %s: there is no stage %q before it", i.text, from)
				}
				for _, source := range sources {
					if !slices.Contains(built[from], source) {
						t.Errorf("COPY %s: stage %s makes no %s", i.text, from, source)
					}
				}
				continue
			}
			for _, source := range sources {
				if !exists(source) {
					t.Errorf("COPY %s: %s does not exist", i.text, source)
				}
				if source != "." && ignored(t, path.Clean(source)) {
					t.Errorf("COPY %s: .dockerignore leaves %s out", i.text, source)
				}
			}
		}
	}
	// `COPY . .` must copy all files that a build needs.
	for _, name := range files(t) {
		needed := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
			!strings.HasPrefix(name, "examples/") ||
			strings.HasPrefix(name, "sql/") || name == "go.mod" || name == "go.sum" || name == "Makefile" ||
			slices.Contains([]string{"tools/need.sh", "tools/engine.sh", "tools/retry.sh", "tools/build-tokenizers.sh"}, name) ||
			strings.HasPrefix(name, "plugins/onnx/tokenizers/shim/")
		if needed && !strings.Contains(name, "testdata/") && ignored(t, name) {
			t.Errorf(".dockerignore leaves out %s, which the build needs", name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || ignored(t, name) {
			continue
		}
		for _, file := range embedded(t, name) {
			if ignored(t, file) {
				t.Errorf(".dockerignore leaves out %s, which %s embeds", file, name)
			}
		}
	}
}

// TestDockerfileScripts checks that a stage copies every script of ours that it runs, and all files that it sources.
func TestDockerfileScripts(t *testing.T) {
	t.Parallel()
	called := regexp.MustCompile(`tools/[a-z_-]+\.(sh|py)`)
	beside := regexp.MustCompile(`(?:BASH_SOURCE\[0\]\}"\)"|\$tools)/([a-z_-]+\.(?:sh|py))`)
	stages := map[string][]string{}
	stage := ""
	for _, i := range dockerfile(t) {
		switch i.name {
		case "FROM":
			stage = i.args[len(i.args)-1]
			stages[stage] = slices.Clone(stages[i.args[0]])
		case "COPY":
			for _, source := range i.args[:len(i.args)-1] {
				if source == "." {
					source = "tools/"
				}
				stages[stage] = append(stages[stage], source)
			}
		case "RUN":
			for _, script := range called.FindAllString(i.text, -1) {
				need := []string{script}
				for _, match := range beside.FindAllStringSubmatch(read(t, script), -1) {
					need = append(need, "tools/"+match[1])
				}
				for _, name := range need {
					if has := stages[stage]; !slices.Contains(has, name) && !slices.Contains(has, "tools/") {
						t.Errorf("RUN %s needs %s, which was not copied before", i.text, name)
					}
				}
			}
		}
	}
}

// TestDockerfileHasTheTokenizersCrate checks that the image's plugin onnx reads every tokenizer: the crate is
// compiled from all of its files, for the same glibc, and without it the build fails.
func TestDockerfileHasTheTokenizersCrate(t *testing.T) {
	t.Parallel()
	const script = "tools/build-tokenizers.sh"
	if !strings.Contains(read(t, "Makefile"), script) || !strings.Contains(read(t, script), "EMBEDSIDECAR_TOKENIZERS") {
		t.Fatalf("make build-onnx does not run %s, or the script does not read EMBEDSIDECAR_TOKENIZERS", script)
	}
	needs := []string{
		"FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS tokenizers", script,
		"COPY plugins/onnx/tokenizers/shim/ plugins/onnx/tokenizers/shim/",
		"EMBEDSIDECAR_TOKENIZERS=must tools/in-image.sh --for \"$TARGETARCH\" " + script,
		"FROM build AS build-onnx", "COPY --from=tokenizers /src/plugins/onnx/tokenizers/ plugins/onnx/tokenizers/",
		"EMBEDSIDECAR_TOKENIZERS=built tools/in-image.sh --for \"$TARGETARCH\" make build-onnx",
	}
	for _, i := range dockerfile(t) {
		line := i.name + " " + i.text + " "
		for len(needs) > 0 && strings.Contains(line, needs[0]) {
			needs = needs[1:]
		}
	}
	if len(needs) > 0 {
		t.Errorf("the Dockerfile lacks %q, or it is in the wrong order", needs)
	}
	release := regexp.MustCompile(`(?m)^ARG (GO|RUST)_IMAGE=\w+:[\d.]+-(\w+)$`).FindAllStringSubmatch(read(t,
		"Dockerfile"), -1)
	if len(release) != 2 || release[0][2] != release[1][2] {
		t.Errorf("Go and Rust must be of the same release of Debian: %q", release)
	}
}

// TestDockerfileIsPinnedAndModest checks that the image has pinned bases, the Go version of go.mod, a user other than
// root, and a health check on the exposed port, on which the sidecar listens.
func TestDockerfileIsPinnedAndModest(t *testing.T) {
	t.Parallel()
	all := dockerfile(t)
	bases := map[string]string{}
	last := map[string]instruction{} // of the stage core, which the stage onnx adds files to
	stage := ""
	var stages []string
	for _, i := range all {
		if i.name == "ARG" {
			if name, value, ok := strings.Cut(i.text, "="); ok {
				bases["${"+name+"}"] = value
			}
		}
		if i.name == "FROM" {
			base := i.args[0]
			if value, ok := bases[base]; ok {
				base = value
			}
			stage = i.args[len(i.args)-1]
			stages = append(stages, stage)
			if base == "scratch" || slices.Contains(stages, base) {
				continue
			}
			if !regexp.MustCompile(`:\d+\.\d+[\w.-]*$`).MatchString(base) {
				t.Errorf("FROM %s: pin the release, e.g. name:1.2.3", base)
			}
		}
		switch {
		case stage == "core":
			last[i.name] = i
		case stage == "onnx" && i.name != "FROM" && i.name != "COPY":
			t.Errorf("the stage onnx has %s: the stage core should have it", i.name)
		}
	}
	if stage != "onnx" || !slices.Contains(stages, "core") {
		t.Errorf("the stages are %q: want core among them, and onnx the last", stages)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	if base := bases["${GO_IMAGE}"]; !strings.HasPrefix(base, "golang:"+goVersion+".") {
		t.Errorf("GO_IMAGE is %s, want the newest patch of Go %s, which go.mod asks for", base, goVersion)
	}
	if base := bases["${BASE_IMAGE}"]; !strings.HasPrefix(base, "debian:12.") {
		t.Errorf("BASE_IMAGE is %s: programs that were linked on bookworm need bookworm's glibc or a newer one", base)
	}
	if user := last["USER"].text; !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) {
		t.Errorf("USER %q: want numbers other than root's", user)
	}
	port := last["EXPOSE"].text
	if env := last["ENV"].text; !strings.HasSuffix(env, "EMBEDSIDECAR_OPS_LISTEN=:"+port) {
		t.Errorf("ENV %s does not listen on the exposed port %s", env, port)
	}
	health := last["HEALTHCHECK"].text
	_, command, _ := strings.Cut(health, "CMD ")
	var words []string
	if err := json.Unmarshal([]byte(command), &words); err != nil {
		t.Errorf("HEALTHCHECK %s: %v", command, err)
	}
	if !slices.Equal(words, []string{"/usr/bin/embedsidecar", "healthcheck"}) {
		t.Errorf("HEALTHCHECK %s: the image has no other program for it", health)
	}
	if entry := last["ENTRYPOINT"].text; entry != `["/usr/bin/embedsidecar"]` {
		t.Errorf("ENTRYPOINT %s: signals must reach the program itself", entry)
	}
}

// TestUnit checks that the package installs what the unit starts and reads.
func TestUnit(t *testing.T) {
	t.Parallel()
	unit, packed := read(t, "deploy/packages/embedsidecar.service"), read(t, "deploy/packages/nfpm-core.yaml")
	for _, path := range []string{
		"/usr/bin/embedsidecar", "/etc/embedsidecar/embedsidecar.yaml",
		"/etc/embedsidecar/pgpass",
	} {
		if !strings.Contains(unit, path) || !strings.Contains(packed, "dst: "+path+"\n") {
			t.Errorf("unit and package do not agree on %s", path)
		}
	}
}
