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

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// The part of the compose format that we use. Decoding is strict, so a misspelt key fails. Keys that begin with x- hold
// anchors.
type compose struct {
	Name     string             `yaml:"name"`
	Common   any                `yaml:"x-embedsidecar"`
	Pipeline any                `yaml:"x-pipeline"`
	TLS      any                `yaml:"x-tls"`
	Mounts   any                `yaml:"x-volumes"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
	Secrets  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
}

type service struct {
	Image       string            `yaml:"image"`
	Profiles    []string          `yaml:"profiles"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Secrets     []string          `yaml:"secrets"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Healthcheck struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Deploy          any      `yaml:"deploy"`
	ReadOnly        bool     `yaml:"read_only"`
	Tmpfs           []string `yaml:"tmpfs"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	MemLimit        string   `yaml:"mem_limit"`
	ShmSize         string   `yaml:"shm_size"`
	StopGracePeriod string   `yaml:"stop_grace_period"`
	Restart         string   `yaml:"restart"`
}

func composeFile(t *testing.T, name string) compose {
	t.Helper()
	var file compose
	if err := yaml.NewDecoder(bytes.NewReader([]byte(read(t, name))), yaml.Strict()).Decode(&file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return file
}

// ours reports whether a service runs one of our images.
func (s service) ours() bool {
	return s.Image == "${EMBEDSIDECAR_IMAGE:-embedsidecar:onnx}" || s.Image == "embedsidecar:core"
}

// TestComposePaths checks that all files, volumes, services and secrets that the compose files name exist.
func TestComposePaths(t *testing.T) {
	t.Parallel()
	for _, paper := range []string{"docker-compose.yml", "docker-compose.existing.yml"} {
		file := composeFile(t, paper)
		for name, s := range file.Services {
			for _, volume := range s.Volumes {
				source, _, _ := strings.Cut(volume, ":")
				if strings.HasPrefix(source, ".") {
					if !exists(source) {
						t.Errorf("%s: %s mounts %s, which does not exist", paper, name, source)
					}
				} else if _, ok := file.Volumes[source]; !ok {
					t.Errorf("%s: %s mounts the volume %s, which is not declared", paper, name, source)
				}
			}
			for other, how := range s.DependsOn {
				needed, ok := file.Services[other]
				if !ok {
					t.Errorf("%s: %s depends on %s, which is no service", paper, name, other)
				}
				if how.Condition == "service_healthy" && len(needed.Healthcheck.Test) == 0 {
					t.Errorf("%s: %s waits until %s is healthy, which has no health check", paper, name, other)
				}
			}
			for _, secret := range s.Secrets {
				if file.Secrets[secret].File == "" {
					t.Errorf("%s: %s reads the secret %s, which is not declared", paper, name, secret)
				}
			}
			if !s.ours() && !regexp.MustCompile(`:\d+\.\d+`).MatchString(s.Image) {
				t.Errorf("%s: %s: pin the release of the image %s", paper, name, s.Image)
			}
			for _, port := range s.Ports {
				if !strings.HasPrefix(port, "127.0.0.1:") {
					t.Errorf("%s: %s opens port %s to the whole network", paper, name, port)
				}
			}
		}
	}
	if !slices.Contains(composeFile(t, "docker-compose.yml").Services["postgres"].Command, "wal_level=logical") {
		t.Error("the server of the compose file does not write a logical WAL")
	}
}

// TestComposeTrustsNobody checks the security of the compose files, because users copy them: containers without
// privileges and with a memory limit, least-privileged roles, passwords in files outside of the clone, and an sslmode.
func TestComposeTrustsNobody(t *testing.T) {
	t.Parallel()
	for _, paper := range []string{"docker-compose.yml", "docker-compose.existing.yml"} {
		file := composeFile(t, paper)
		for name, s := range file.Services {
			for variable, value := range s.Environment {
				if strings.Contains(variable, "PASSWORD") && !strings.HasSuffix(variable, "_FILE") ||
					regexp.MustCompile(`://[^/@]*:[^/@]*@`).MatchString(regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(value,
						"x")) {
					t.Errorf("%s: %s has a password in %s", paper, name, variable)
				}
				if strings.HasSuffix(variable, "_URL") && strings.HasPrefix(value, "postgres:") &&
					!strings.Contains(value, "sslmode=") && s.Environment["PGSSLMODE"] == "" {
					t.Errorf("%s: %s lacks the sslmode of %s", paper, name, variable)
				}
			}
			if !s.ours() {
				continue
			}
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt,
				"no-new-privileges:true") || s.MemLimit == "" {
				t.Errorf("%s: %s may do more than it needs: %+v", paper, name, s)
			}
		}
		for name, secret := range file.Secrets {
			if !strings.HasPrefix(secret.File, "./deploy/secrets/") || exists(secret.File) &&
				!strings.Contains(read(t, ".gitignore"), "/deploy/secrets/") {
				t.Errorf("%s: the secret %s is in %s, which may be committed", paper, name, secret.File)
			}
		}
		s := file.Services["sidecar"]
		for variable, role := range map[string]string{
			"EMBEDSIDECAR_DATABASE_URL": sqlfiles.RunRole,
			"EMBEDSIDECAR_STREAM_URL":   sqlfiles.StreamRole,
		} {
			if !strings.HasPrefix(s.Environment[variable], "postgres://"+role+"@") {
				t.Errorf("%s: the sidecar's %s is %s, want the role %s", paper, variable, s.Environment[variable], role)
			}
		}
	}
}

// sidecar returns the configuration of the compose file's sidecar: from the image's environment, its own and its flags.
func sidecar(t *testing.T) *config.Config {
	t.Helper()
	s := composeFile(t, "docker-compose.yml").Services["sidecar"]
	if !slices.Equal(s.Command, []string{"run", "--no-init"}) {
		t.Fatalf("the sidecar of the compose file runs %q", s.Command)
	}
	settings := map[string]bool{"EMBEDSIDECAR_PIPELINE": true}
	for _, setting := range config.Settings() {
		settings[setting.Env()] = true
	}
	var environ []string
	for _, i := range dockerfile(t) {
		for _, entry := range i.args {
			if i.name == "ENV" && strings.HasPrefix(entry, "EMBEDSIDECAR_") {
				environ = append(environ, entry)
			}
		}
	}
	usual := regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)
	for name, value := range s.Environment {
		environ = append(environ, name+"="+usual.ReplaceAllString(value, "$1"))
	}
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "EMBEDSIDECAR_") && !settings[name] &&
			!strings.HasPrefix(name, "EMBEDSIDECAR_PLUGIN_REMOTE_") {
			t.Errorf("the sidecar does not know the variable %s", name)
		}
	}
	cfg, warnings, err := config.Load(config.Source{Environ: environ, Hostname: "sidecar"})
	if err != nil {
		t.Fatalf("the sidecar refuses the configuration of the compose file: %v", err)
	}
	if len(warnings) > 0 {
		t.Errorf("the sidecar warns of the configuration of the compose file: %q", warnings)
	}
	return cfg
}

// TestComposeTable checks that the server's first script creates the table and columns of the sidecar's configuration.
func TestComposeTable(t *testing.T) {
	t.Parallel()
	cfg := sidecar(t)
	if len(cfg.Pipelines) != 1 {
		t.Fatalf("the compose file makes %d pipelines", len(cfg.Pipelines))
	}
	p := cfg.Pipelines[0]
	name := p.Schema + "." + p.Table
	table := regexp.MustCompile(`(?s)CREATE TABLE ` + regexp.QuoteMeta(name) + ` \((.*?)\n\);`).FindStringSubmatch(read(t,
		"examples/init.sql"))
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
		"model":   func() (string, error) { return find.Model(manifest.Default().Model.Default, "") },
		"library": func() (string, error) { return find.Library(manifest.Default().Library, "") },
	} {
		found, err := look()
		if missing, ok := errors.AsType[*config.NotFoundError](err); ok {
			found = missing.Searched[len(missing.Searched)-1]
		} else if err != nil {
			t.Fatal(err)
		}
		looked[kind] = found
	}
	for kind, place := range map[string]string{
		"plugin": looked["plugin"], "model": path.Dir(looked["model"]),
		"library": path.Dir(looked["library"]),
	} {
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
