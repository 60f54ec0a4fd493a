package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

const wholeFile = `# everything a file may hold
version: 1
enabled: false
instance: docs-1
database:
  url: ${DATABASE_URL}
  stream_url: postgres://stream@${DB_HOST:-db.internal}/docs
  connect_timeout: 90s
slot:
  name: docs_slot
  on_lost: stop
publication: {name: docs_pub, column_lists: true}
default_model: minilm
model_dir: /srv/models
onnxruntime: /srv/lib/libonnxruntime.so
threads: auto
plugins:
  dir: /srv/plugins
  default: onnx
  catalog:
    - name: onnx
      sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF
      env: [OMP_NUM_THREADS]
    - {name: own, path: /srv/own}
models:
  - {name: minilm, path: /models/minilm, threads: 4}
  - name: big
    plugin: own
    sha256: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
pipelines:
  - name: docs
    table: public.docs
    text: "concat_ws(E'\n', title, $$'$$')"
    where: |
      status = 'published'
    model: big
    into: {column: embedding}
    priority: urgent
    enabled: false
    overwrite: true
  - table: '"Weird Schema"."Doc""s"'
    columns: title, body
    into: {table: odd.t}
    search: {filterable: [tenant, "Status"], row_security: ignore}
  - "public.docs: title -> table docs_embedding"
workers: {count: 3, batch_rows: 32, cache_bytes: 128MiB, drain_timeout: 0s}
lease: 1m30s
retry: {max_attempts: 5, initial: 500ms, max: 1m}
http:
  ops:
    listen: ":7471"
  queries: {search_timeout: 2500ms}
log: {level: debug, format: json, output: stdout}
`

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_WholeFile(t *testing.T) {
	c, warnings, err := Load(Source{
		Flags:   map[string][]string{"config": {write(t, wholeFile)}},
		Environ: []string{"DATABASE_URL=postgres://u:pw@h/docs"},
	})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	want := &Config{
		Enabled: false, Instance: "docs-1",
		Database: Database{
			URL: "postgres://u:pw@h/docs", StreamURL: "postgres://stream@db.internal/docs",
			ConnectTimeout: 90 * time.Second,
		},
		Slot:         Slot{Name: "docs_slot", StopOnLost: true},
		Publication:  Publication{Name: "docs_pub", ColumnLists: true},
		Tenants:      Default().Tenants,
		DefaultModel: "minilm", ModelDir: "/srv/models",
		Libraries: map[string]string{"onnxruntime": "/srv/lib/libonnxruntime.so"},
		Plugins: Plugins{Dir: "/srv/plugins", Default: "onnx", Catalog: []Plugin{
			{Name: "onnx", SHA256: sum, Env: []string{"OMP_NUM_THREADS"}}, {Name: "own", Path: "/srv/own"},
		}},
		Models: []Model{{Name: "minilm", Plugin: "onnx", Path: "/models/minilm", Threads: 4}, {
			Name: "big", Plugin: "own",
			SHA256: sum,
		}},
		Pipelines: []pipeline.Spec{
			{
				Name: "docs", Schema: "public", Table: "docs",
				Text:   "concat_ws(E'\\n', title, $'$')",
				Filter: "status = 'published'", Model: "big", Plugin: "own", IntoColumn: "embedding", Priority: pipeline.Urgent,
				Enabled: false, Overwrite: true, ColumnLists: true,
			},
			{
				Name: `"Weird Schema"."Doc""s"`, Schema: "Weird Schema", Table: `Doc"s`, Columns: []string{"title", "body"},
				IntoSchema: "odd", IntoTable: "t",
				Model: "minilm", Plugin: "onnx", Priority: pipeline.Normal, Enabled: true, ColumnLists: true,
			},
			{
				Name: "public.docs", Schema: "public", Table: "docs", Columns: []string{"title"}, IntoTable: "docs_embedding",
				Model: "minilm", Plugin: "onnx", Priority: pipeline.Normal, Enabled: true, ColumnLists: true,
			},
		},
		searches: []Search{{}, {Filterable: []string{"tenant", "status"}, PastRowSecurity: true}},
		Workers: Workers{
			Count: 3, BatchRows: 32, Direct: true, CacheBytes: 128 << 20,
		},
		Lease:   90 * time.Second,
		Retry:   Retry{MaxAttempts: 5, Initial: 500 * time.Millisecond, Max: time.Minute, Priority: "same"},
		History: History{Keep: 24 * time.Hour, Rows: 20_000_000},
		Ops:     Ops{Listen: ":7471"},
		Queries: Queries{SearchTimeout: 2500 * time.Millisecond},
		Log:     Log{Level: slog.LevelDebug, Format: "json", Output: "stdout"},
	}
	// In YAML's double quotes, \n is a line break.
	want.Pipelines[0].Text = "concat_ws(E'\n', title, $'$')"
	if diff := cmp.Diff(want, c, cmp.FilterPath(func(p cmp.Path) bool {
		last := p.Last().String()
		return last == ".origins" || last == ".env" || last == ".file"
	}, cmp.Ignore()), cmp.AllowUnexported(Config{}, Database{}, Model{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := c.Origin("workers.count"); !strings.HasSuffix(got, "embedsidecar.yaml:46:18") {
		t.Errorf("Origin(workers.count) = %q", got)
	}
	if got := c.Origin("log.nothing"); got != "default" {
		t.Errorf("Origin of nothing = %q", got)
	}
	for _, shown := range []string{
		fmt.Sprint(c.Database), fmt.Sprintf("%#v", c.Database), c.Database.LogValue().String(),
		fmt.Sprintf("%+v", *c),
	} {
		if strings.Contains(shown, "pw@") {
			t.Errorf("the password shows: %s", shown)
		}
	}
}

func TestLoad_Precedence(t *testing.T) {
	file := write(t, "slot: {name: file}\nworkers: {count: 1}\nlease: 1m\ndatabase: {url: \"postgres://file/db\"}\n")
	c, _, err := Load(Source{
		Flags:   map[string][]string{"config": {file}, "slot": {"a", "flag"}},
		Environ: []string{"EMBEDSIDECAR_SLOT=env", "EMBEDSIDECAR_WORKERS=2", "EMBEDSIDECAR_MODEL="},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range Settings() {
		if strings.Contains(s.Path, "[]") || s.Type == "version" {
			continue
		}
		got[s.Path] = s.Value(c) + " from " + strings.TrimPrefix(c.Origin(s.Path), file)
	}
	for path, want := range map[string]string{
		"slot.name": "flag from --slot", "workers.count": "2 from EMBEDSIDECAR_WORKERS", "lease": "1m from :3:8",
		"workers.batch_rows": "256 from default", "database.url": "postgres://file/db from :4:17",
	} {
		if got[path] != want {
			t.Errorf("%s = %q, want %q", path, got[path], want)
		}
	}
}

func TestLoad_ConfigFromEnvironment(t *testing.T) {
	c, _, err := Load(Source{Environ: []string{"EMBEDSIDECAR_CONFIG=" + write(t, "slot: {name: x}")}})
	if err != nil || c.Slot.Name != "x" || c.File() == "" {
		t.Errorf("slot %q, file %q: %v", c.Slot.Name, c.File(), err)
	}
}

func TestLoad_ConnectionStringFromFile(t *testing.T) {
	secret := write(t, "  postgres://u:from-file@h/db\n")
	tests := []struct {
		name    string
		flags   map[string][]string
		environ []string
		want    string
	}{
		{"flag", map[string][]string{"database-url-file": {secret}}, nil, "postgres://u:from-file@h/db"},
		{"environment", nil, []string{"EMBEDSIDECAR_DATABASE_URL_FILE=" + secret}, "postgres://u:from-file@h/db"},
		{
			"flag over environment's file",
			map[string][]string{"database-url": {"postgres://flag/db"}},
			[]string{"EMBEDSIDECAR_DATABASE_URL_FILE=" + secret},
			"postgres://flag/db",
		},
		{
			"flag's file over environment",
			map[string][]string{"database-url-file": {secret}},
			[]string{"EMBEDSIDECAR_DATABASE_URL=postgres://env/db"},
			"postgres://u:from-file@h/db",
		},
	}
	for _, test := range tests {
		c, _, err := Load(Source{Flags: test.flags, Environ: test.environ})
		if err != nil || c.Database.URL != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, c.Database.URL, err, test.want)
		}
	}
	for want, flags := range map[string]map[string][]string{
		"excludes database.url_file": {"database-url": {"postgres://h/db"}, "database-url-file": {secret}},
		"is empty":                   {"database-url-file": {write(t, " \n")}},
		"no such file":               {"stream-url-file": {secret + ".gone"}},
	} {
		if _, _, err := Load(Source{Flags: flags}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", flags, err, want)
		}
	}
}

func TestLoad_Pipelines(t *testing.T) {
	file := write(t, "pipelines:\n- {name: a, table: t, columns: [x], into: {column: v}}\n")
	c, warnings, err := Load(Source{
		Flags: map[string][]string{
			"config": {file}, "pipeline": {"docs: a -> v", "docs: a -> table w"}, "table": {"docs"},
			"columns": {"b", "c,d"}, "into": {"u"}, "overwrite": {"true"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, spec := range c.Pipelines {
		got = append(got, spec.Name+" = "+FormatPipeline(spec))
		if !spec.Overwrite || spec.Plugin != "onnx" || spec.Model != "all-MiniLM-L6-v2" {
			t.Errorf("%+v", spec)
		}
	}
	want := []string{
		"public.docs = public.docs: a -> v", "public.docs:w = public.docs: a -> table w",
		"public.docs:u = public.docs: b, c, d -> u",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "--pipeline replaces the 1 pipelines") {
		t.Errorf("warnings %q", warnings)
	}

	c, _, err = Load(Source{Environ: []string{
		"EMBEDSIDECAR_PIPELINE=\n a: b -> c\n\n d: e -> table f\n",
		"EMBEDSIDECAR_PLUGIN=fake",
	}})
	if err != nil || len(c.Pipelines) != 2 || c.Pipelines[1].IntoTable != "f" || c.Pipelines[1].Plugin != "fake" ||
		c.Pipelines[1].Model != "" {
		t.Errorf("%+v, %v", c.Pipelines, err)
	}
	c, _, err = Load(Source{Environ: []string{
		"EMBEDSIDECAR_TABLE=a", "EMBEDSIDECAR_COLUMNS=b,c",
		"EMBEDSIDECAR_INTO_TABLE=d",
	}})
	if err != nil || len(c.Pipelines) != 1 || FormatPipeline(c.Pipelines[0]) != "public.a: b, c -> table d" {
		t.Errorf("%+v, %v", c.Pipelines, err)
	}
}

func TestLoad_Warnings(t *testing.T) {
	_, warnings, err := Load(Source{
		Flags:      map[string][]string{"database-url": {"postgres://u:s3cret@h/db"}},
		OtherFlags: []string{"verbose"},
		Environ: []string{
			"EMBEDSIDECAR_SLOTT=x", "EMBEDSIDECAR_SERVICE_HOST=10.0.0.1", "EMBEDSIDECAR_PORT_80_TCP=x",
			"EMBEDSIDECAR_PLUGIN_COST=1",
			"EMBEDSIDECAR_VERBOSE=1", "OTHER=x", "EMBEDSIDECAR_ZZZZZZ=1",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(warnings, "\n")
	for _, want := range []string{
		"EMBEDSIDECAR_SLOTT is unknown and has no effect: did you mean EMBEDSIDECAR_SLOT?",
		"EMBEDSIDECAR_ZZZZZZ is unknown and has no effect", "--database-url holds a password",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no warning %q in:\n%s", want, got)
		}
	}
	if len(warnings) != 3 || strings.Contains(got, "s3cret") {
		t.Errorf("warnings:\n%s", got)
	}
}

func TestLoad_EveryMistakeAtOnce(t *testing.T) {
	file := write(t, `version: 2
slott: {name: x}
slot:
  name: Docs
  size: 3
workers: {count: -1, batch_rows: many, drain_timeout: 30}
lease: 5
retry: {initial: 10m, max: 5s}
log: {level: loud, format:}
http: {ops: {listen: 7471}}
database: postgres://u:s3cret@h/db
models:
  - path: /m
  - {name: a, sha256: abc}
  - {name: a}
plugins: {catalog: [{name: x, env: [1A]}]}
pipelines:
  - table: a.b.c
    columns: [x]
    into: {column: v}
  - table: docs
    columns: [x, "y z"]
    into: {column: v}
  - {table: docs, columns: [x]}
  - {table: docs, into: {column: v, table: w}}
  - {table: docs, columns: [x], into: {column: q}, where: ""}
  - {table: docs, columns: [x], into: {column: q}}
  - public.docs: title -> v
  - "docs title -> v"
  - {table: docs, columns: [x, x], into: {column: x}, priority: soon, enabled: maybe}
  - {name: n, table: t1, columns: [x], into: {table: e}}
  - {name: n, table: t2, columns: [x], into: {table: e}}
  - {columns: [x], into: {table: e}}
instance: ${NOT_SET}
`)
	_, _, err := Load(Source{
		Flags:   map[string][]string{"config": {file}, "threads": {"x"}, "table": nil},
		Environ: []string{"EMBEDSIDECAR_RETRY_MAX_ATTEMPTS=0"},
	})
	if _, ok := errors.AsType[*Error](err); !ok {
		t.Fatalf("%v is no *Error", err)
	}
	got := strings.ReplaceAll(err.Error(), file, "FILE")
	golden(t, "mistakes.txt", got)
	if strings.Contains(got, "s3cret") {
		t.Error("a password shows")
	}
}

func TestLoad_NeverShowsASecretOfTheFile(t *testing.T) {
	for _, content := range []string{
		"database: {url: postgres://u:s3cret@h/db, urll: x}",
		"database:\n  url: [postgres://u:s3cret@h/db]",
		"database:\n  url: postgres://u:s3cret@h:bad/db",
		"database:\n  url: host=h password=s3cret port=bad",
		"database:\n  url: \"postgres://u:s3cret@h/db",
		"database:\n\turl: postgres://u:s3cret@h/db",
		"database: postgress://u:s3cret@h/db\n",
		"slot: {name: \"postgres://u:s3cret@h/db\"}",
		"slot: {name: \"password=s3cret\"}",
		"database:\n  url: postgres://u:${PW}@h:bad/db",
		"instance: 'x postgres://u:${PW}@h/db'",
		"lease: postgres://u:s3cret@h/db",
		"database:\n  password: s3cret",
		"database:\n  url: a\n  url: postgres://u:s3cret@h/db",
	} {
		_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, content)}}, Environ: []string{"PW=s3cret"}})
		if err == nil {
			t.Errorf("%q: no error", content)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestLoad_FileForms(t *testing.T) {
	good := map[string]string{
		"empty":            "",
		"comments only":    "# nothing\n",
		"all commented":    "database:\n  # url: x\npipelines:\n",
		"document marks":   "---\nslot: {name: x}\n...\n",
		"byte order mark":  "\ufeffslot: {name: x}\n",
		"windows lines":    "slot:\r\n  name: x\r\n",
		"anchor and merge": "x-base: &base {name: x}\nslot:\n  <<: *base\n  on_lost: stop\n",
		"own key wins":     "x-base: &base {name: y, on_lost: stop}\nslot:\n  <<: *base\n  name: x\n",
		"alias":            "instance: &i x\nslot: {name: *i}\n",
		"tag":              "slot: {name: !!str x}\n",
		"folded":           "slot:\n  name: >-\n    x\n",
	}
	for name, content := range good {
		c, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, content)}}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(content, "x") && strings.Contains(content, "slot") && c.Slot.Name != "x" {
			t.Errorf("%s: slot %q", name, c.Slot.Name)
		}
	}
	bad := map[string]string{
		"second document begins": "slot: {name: x}\n---\nslot: {name: y}\n",
		"already defined":        "slot: {name: x}\nslot: {name: y}\n",
		"not UTF-8":              "slot: {name: \"\xff\"}\n",
		"not valid YAML":         "slot: {name: x\n",
		"inside { }":             "database: {url: ${DATABASE_URL}}\n",
		"found a list":           "slot: [x]\n",
		"found a single value: its keys are failover, name, on_lost": "slot: x\n",
		"found keys and values":   "slot: {name: {a: b}}\n",
		"has no anchor before it": "slot: *nothing\n",
		"no value":                "slot:\n  name:\n",
		"expected a value":        "pipelines: [{columns: [[a]]}]\n",
		"${ without }":            "instance: ${HOME\n",
		"is not a variable":       "instance: \"${A B}\"\n",
	}
	for want, content := range bad {
		_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, content)}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	if _, _, err := Load(Source{Flags: map[string][]string{"config": {"/nowhere/x.yaml"}}}); err == nil ||
		!strings.Contains(err.Error(), "--config: read the configuration: open /nowhere/x.yaml") {
		t.Error(err)
	}
	if _, _, err := Load(Source{Flags: map[string][]string{"config": {write(t,
		"# "+strings.Repeat("x", maxFile))}}}); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Error(err)
	}
}

// A thousand mistakes are counted, and the first are listed. Reload does not block on a pipe.
func TestReload_OfWhatIsNoConfiguration(t *testing.T) {
	t.Parallel()
	file := write(t, "version: 1\npipelines:\n"+strings.Repeat("- {tabel: docs}\n", 1000))
	_, _, err := Reload(Source{Flags: map[string][]string{"config": {file}}}, file)
	if err == nil || !strings.Contains(err.Error(), "and 950 more") || len(err.Error()) > 20_000 {
		t.Error(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Reload(Source{Flags: map[string][]string{"config": {pipe}}}, pipe); err == nil {
		t.Error("a pipe was read")
	}
}

func FuzzFile(f *testing.F) {
	f.Add(wholeFile)
	f.Add("a: &a [*a]\nb: {<<: *a, c: *b}\n")
	f.Add("pipelines:\n- *x\n- &x {table: a, <<: *x}\n")
	f.Add("? a\n: b\n")
	f.Add("version: 1\nslot: !!map {name: !x y}\n")
	f.Add("{}\n---\n")
	f.Add("instance: ${A:-$${}\n")
	f.Fuzz(func(t *testing.T, content string) {
		c := Default()
		r := &reader{name: "f", put: c.put, lookup: func(string) (string, bool) { return "", false }}
		r.read([]byte(content), filePlaces())
		if len(r.problems) > 0 {
			return
		}
		c.check()
		for i := range Settings() {
			s := &Settings()[i]
			if strings.Contains(s.Path, "[]") || s.Type == "version" {
				continue
			}
			text := s.text(reflect.ValueOf(c).Elem())
			if err := s.put(reflect.ValueOf(Default()).Elem(), text); err != nil && text != s.Default() {
				t.Errorf("%s = %q: %v", s.Path, text, err)
			}
		}
	})
}

func TestLoad_TellsWhatAPipelineSaysItself(t *testing.T) {
	file := write(t, "pipelines:\n  - {table: a, columns: x, into: {column: v}, enabled: true}\n  - {name: b, table: b, columns: x, into: {column: v}}\n")
	c, _, err := Load(Source{Flags: map[string][]string{"config": {file}}})
	if err != nil {
		t.Fatal(err)
	}
	for path, said := range map[string]bool{
		"pipelines[0].enabled": true, "pipelines[0].name": false,
		"pipelines[1].enabled": false, "pipelines[1].name": true,
	} {
		if got := c.Origin(path) != "default"; got != said {
			t.Errorf("%s: %v (%s), want %v", path, got, c.Origin(path), said)
		}
	}
	c, _, err = Load(Source{Flags: map[string][]string{"config": {file}, "pipeline": {"a: x -> v"}}})
	if err != nil || c.Origin("pipelines[0].enabled") != "default" {
		t.Errorf("%q, %v: the flags replace the file's pipelines", c.Origin("pipelines[0].enabled"), err)
	}
}
