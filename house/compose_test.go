package house

import (
	"bytes"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/embedsidecar/embedsidecar/config"
)

// The part of the compose format that we use. Decoding is strict, so a misspelt key fails.
type compose struct {
	Name     string             `yaml:"name"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type service struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Healthcheck struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
	Build struct {
		Context    string `yaml:"context"`
		Dockerfile string `yaml:"dockerfile"`
	} `yaml:"build"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	ReadOnly        bool     `yaml:"read_only"`
	Tmpfs           []string `yaml:"tmpfs"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	Init            bool     `yaml:"init"`
	ShmSize         string   `yaml:"shm_size"`
	StopGracePeriod string   `yaml:"stop_grace_period"`
	Restart         string   `yaml:"restart"`
}

func composeFile(t *testing.T) compose {
	t.Helper()
	var file compose
	if err := yaml.NewDecoder(bytes.NewReader([]byte(read(t, "docker-compose.yml"))), yaml.Strict()).Decode(&file); err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return file
}

// TestComposePaths checks every name that the compose file takes from elsewhere: files, volumes, services.
func TestComposePaths(t *testing.T) {
	t.Parallel()
	file := composeFile(t)
	for name, s := range file.Services {
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if strings.HasPrefix(source, ".") {
				if !exists(source) {
					t.Errorf("%s mounts %s, which does not exist", name, source)
				}
			} else if _, ok := file.Volumes[source]; !ok {
				t.Errorf("%s mounts the volume %s, which is not declared", name, source)
			}
		}
		for other, how := range s.DependsOn {
			needed, ok := file.Services[other]
			if !ok {
				t.Errorf("%s depends on %s, which is no service", name, other)
			}
			if how.Condition == "service_healthy" && len(needed.Healthcheck.Test) == 0 {
				t.Errorf("%s waits until %s is healthy, which has no health check", name, other)
			}
		}
		if s.Build.Context != "" && !exists(path.Join(s.Build.Context, s.Build.Dockerfile)) {
			t.Errorf("%s is built from %s in %s, which does not exist", name, s.Build.Dockerfile, s.Build.Context)
		}
		if s.Build.Context == "" && !regexp.MustCompile(`:\d+\.\d+`).MatchString(s.Image) {
			t.Errorf("%s: pin the release of the image %s", name, s.Image)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s opens port %s to the whole network", name, port)
			}
		}
	}
	if !slices.Contains(file.Services["postgres"].Command, "wal_level=logical") {
		t.Error("the server of the compose file does not write a logical WAL")
	}
}

// sidecar returns what the compose file's sidecar would run with: the image's environment, its own and its flags.
func sidecar(t *testing.T) *config.Config {
	t.Helper()
	s := composeFile(t).Services["sidecar"]
	if len(s.Command) == 0 || s.Command[0] != "run" {
		t.Fatalf("the sidecar of the compose file runs %q", s.Command)
	}
	settings := map[string]bool{}
	for _, setting := range config.Settings() {
		settings[setting.Flag], settings[setting.Env()] = true, true
	}
	flags := map[string][]string{}
	for _, word := range s.Command[1:] {
		name, value, ok := strings.Cut(word, "=")
		name = strings.TrimPrefix(name, "--")
		if !ok || !settings[name] && !slices.Contains(config.PipelineFlags(), name) {
			t.Errorf("the sidecar of the compose file gets %q, which is no flag of run", word)
		}
		flags[name] = append(flags[name], value)
	}
	var environ []string
	for _, i := range dockerfile(t) {
		for _, entry := range i.args {
			if i.name == "ENV" && strings.HasPrefix(entry, "EMBEDSIDECAR_") {
				environ = append(environ, entry)
			}
		}
	}
	for name, value := range s.Environment {
		environ = append(environ, name+"="+value)
	}
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "EMBEDSIDECAR_") && !settings[name] {
			t.Errorf("%s is no variable that the sidecar knows", name)
		}
	}
	cfg, warnings, err := config.Load(config.Source{Flags: flags, Environ: environ, Hostname: "sidecar"})
	if err != nil {
		t.Fatalf("the sidecar refuses what the compose file tells it: %v", err)
	}
	if len(warnings) > 0 {
		t.Errorf("the sidecar warns of what the compose file tells it: %q", warnings)
	}
	return cfg
}

// TestComposeTable checks that the sidecar is told of a table and columns that the server's first script makes.
func TestComposeTable(t *testing.T) {
	t.Parallel()
	cfg := sidecar(t)
	if len(cfg.Pipelines) != 1 {
		t.Fatalf("the compose file makes %d pipelines", len(cfg.Pipelines))
	}
	p := cfg.Pipelines[0]
	name := p.Schema + "." + p.Table
	table := regexp.MustCompile(`(?s)CREATE TABLE ` + regexp.QuoteMeta(name) + ` \((.*?)\n\);`).FindStringSubmatch(read(t, "examples/init.sql"))
	if table == nil {
		t.Fatalf("examples/init.sql makes no table %s", name)
	}
	for _, column := range append(slices.Clone(p.Columns), p.IntoColumn) {
		if !regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(column) + `\s+\w`).MatchString(table[1]) {
			t.Errorf("%s has no column %q", name, column)
		}
	}
	if !strings.HasSuffix(cfg.Ops.Listen, ":7471") {
		t.Errorf("the sidecar listens on %q, the compose file publishes 7471", cfg.Ops.Listen)
	}
}

// TestImageLayout checks that the sidecar looks for plugin, library and model where the image has them.
func TestImageLayout(t *testing.T) {
	t.Parallel()
	var places []string
	for _, i := range dockerfile(t) {
		if i.name == "COPY" && i.flag("from") != "" {
			to := i.args[len(i.args)-1]
			for _, source := range i.args[:len(i.args)-1] {
				if strings.HasSuffix(source, "/") {
					places = append(places, strings.TrimSuffix(to, "/"))
				} else {
					places = append(places, path.Join(to, path.Base(source)))
				}
			}
		}
	}
	find := config.Finder{Executable: "/usr/bin/embedsidecar"}
	looked := map[string]string{}
	for kind, look := range map[string]func() (string, error){
		"plugin":  func() (string, error) { return find.Plugin("onnx", "") },
		"model":   func() (string, error) { return find.Model(config.DefaultONNXModel, "") },
		"library": func() (string, error) { return find.Library("") },
	} {
		found, err := look()
		if missing, ok := errors.AsType[*config.NotFoundError](err); ok {
			found = missing.Searched[len(missing.Searched)-1]
		} else if err != nil {
			t.Fatal(err)
		}
		looked[kind] = found
	}
	for kind, place := range map[string]string{"plugin": looked["plugin"], "model": path.Dir(looked["model"]), "library": path.Dir(looked["library"])} {
		if !slices.Contains(places, place) {
			t.Errorf("the sidecar looks for its %s in %s, the image has %q", kind, place, places)
		}
	}
	if !slices.Contains(places, find.Executable) {
		t.Errorf("the image has no %s", find.Executable)
	}
}

// TestYAML parses every YAML file of the repository.
func TestYAML(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		if ext := path.Ext(name); ext != ".yml" && ext != ".yaml" || strings.Contains(name, "testdata/") {
			continue
		}
		var content any
		if err := yaml.Unmarshal([]byte(read(t, name)), &content); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if content == nil {
			t.Errorf("%s holds nothing", name)
		}
	}
}
