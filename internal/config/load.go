package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Source is where settings come from.
type Source struct {
	// Flags are the flags that were given, without dashes, each with its values in order. Besides those of Settings these
	// are known: config, plugin-env and those of PipelineFlags. Others are ignored.
	Flags map[string][]string
	// Environ is the environment in the form of os.Environ.
	Environ []string
	// OtherFlags are flags of the program that are no settings; their variables are left alone.
	OtherFlags []string
	// PID is that of the process. With Hostname it is the default of Instance: several sidecars of a host have names of
	// their own.
	PID int
	// Hostname is the first part of the default of Instance.
	Hostname string
}

// PipelineFlags are the flags, beside those of Settings, that describe pipelines.
func PipelineFlags() []string {
	return []string{"pipeline", "table", "columns", "into", "into-table", "into-type", "index", "overwrite"}
}

// Load merges defaults, file, environment and flags, each over the one before, and checks the result. Lists
// (pipelines) replace each other as a whole. The warnings are for a log; they and the error hold no password. The
// error is an *Error with every mistake that was found; the configuration then is what could be understood and still
// tells how to log.
func Load(src Source) (cfg *Config, warnings []string, err error) {
	l := &loader{cfg: Default(), src: src, env: map[string]string{}}
	for _, entry := range src.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			l.env[name] = value
		}
	}
	l.cfg.env = &environ{l.env}
	l.cfg.Instance = instanceOf(src.Hostname, src.PID)
	l.file()
	l.environment()
	l.flags()
	l.secrets()
	l.finish()
	for _, p := range l.cfg.check() {
		// What could not be read is not also missing.
		if !slices.ContainsFunc(l.problems, func(earlier Problem) bool { return related(earlier.Path, p.Path) }) {
			l.problems = append(l.problems, p)
		}
	}
	if len(l.problems) > 0 {
		return l.cfg, l.warnings, &Error{Problems: l.problems}
	}
	return l.cfg, l.warnings, nil
}

// related reports whether one path is the other or lies below it.
func related(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return a != "" && strings.HasPrefix(b, a) && (len(a) == len(b) || b[len(a)] == '.' || b[len(a)] == '[')
}

type loader struct {
	cfg      *Config
	src      Source
	env      map[string]string
	problems []Problem
	warnings []string
}

func (l *loader) fail(place, path string, err error) {
	l.problems = append(l.problems, Problem{Place: place, Path: path, Message: redactText(shown(err))})
}

// value returns a flag's value, or that of its variable, and where it came from. An empty variable counts as unset.
func (l *loader) value(flag string) (value, place string) {
	if values := l.src.Flags[flag]; len(values) > 0 {
		return values[len(values)-1], "--" + flag
	}
	return l.env[EnvName(flag)], EnvName(flag)
}

func (l *loader) file() {
	name, place := l.value("config")
	if name == "" {
		return
	}
	data, mode, err := readOurs(name, maxFile+1)
	if err != nil {
		l.fail(place, "", fmt.Errorf("read the configuration: %w", err))
		return
	}
	if everybodys(mode) { // no refusal: what some systems mount into a container looks like this, and nobody else is there
		l.warnings = append(l.warnings,
			"every user of this machine may write the configuration, and so choose what is run here: chmod o-w "+name)
	}
	l.cfg.file = name
	lookup := func(variable string) (string, bool) {
		value, ok := l.env[variable]
		return value, ok
	}
	r := readYAML(name, data, fileSchema(l.cfg), lookup)
	l.problems = append(l.problems, r.problems...)
	maps.Copy(l.cfg.origins, r.origins)
	l.oneURL(name, func(path string) bool { _, ok := r.origins[path]; return ok })
}

// oneURL refuses a string and a file for the same connection at one place.
func (l *loader) oneURL(place string, has func(path string) bool) {
	for _, pair := range [][2]string{
		{"database.url", "database.url_file"},
		{"database.stream_url", "database.stream_url_file"},
	} {
		if has(pair[0]) && has(pair[1]) {
			l.fail(place, pair[0], fmt.Errorf("it excludes %s: give one of them", pair[1]))
		}
	}
}

func (l *loader) environment() {
	l.layer("the environment", func(flag string) (string, string, bool) {
		value := l.env[EnvName(flag)]
		return value, EnvName(flag), value != ""
	})
	known := map[string]bool{envPrefix + "CONFIG": true, envPrefix + "FAILPOINTS": true}
	for _, setting := range Settings() {
		known[setting.Env()] = true
	}
	for _, flag := range PipelineFlags() {
		known[EnvName(flag)] = true
	}
	for _, flag := range l.src.OtherFlags {
		known[EnvName(flag)] = true
	}
	names := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		// Kubernetes makes variables for every Service, also for one named embedsidecar.
		foreign := strings.HasPrefix(name, envPrefix+"SERVICE_") || strings.HasPrefix(name, envPrefix+"PORT") ||
			strings.HasPrefix(name, pluginEnvPrefix) || strings.HasPrefix(name, envPrefix+"TEST_")
		if strings.HasPrefix(name, envPrefix) && !known[name] && !foreign {
			warning := "the environment variable " + name + " is unknown and has no effect"
			if near := spelling.One(name, names); near != "" {
				warning += ": " + spelling.Question(near)
			}
			l.warnings = append(l.warnings, warning)
		}
	}
	// Several pipelines in one variable stand on lines of their own.
	var lines []string
	for line := range strings.SplitSeq(l.env[EnvName("pipeline")], "\n") {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	var columns []string
	if c := l.env[EnvName("columns")]; c != "" {
		columns = []string{c}
	}
	l.pipelines(EnvName, lines, l.env[EnvName("table")], columns, l.env[EnvName("into")], l.env[EnvName("into-table")])
	l.everyPipeline(EnvName, func(flag string) string { return l.env[EnvName(flag)] })
}

func (l *loader) flags() {
	l.layer("the command line", func(flag string) (string, string, bool) {
		values := l.src.Flags[flag]
		if len(values) == 0 {
			return "", "", false
		}
		return values[len(values)-1], "--" + flag, true
	})
	for _, flag := range []string{"database-url", "stream-url"} {
		for _, dsn := range l.src.Flags[flag] {
			if HasPassword(dsn) {
				l.warnings = append(l.warnings,
					fmt.Sprintf("--%s holds a password, which every user of this machine can read in the list of processes: give it by %s or --%s-file", flag, EnvName(flag), flag))
			}
		}
	}
	last := func(flag string) string {
		if values := l.src.Flags[flag]; len(values) > 0 {
			return values[len(values)-1]
		}
		return ""
	}
	dashed := func(flag string) string { return "--" + flag }
	l.pipelines(dashed, l.src.Flags["pipeline"], last("table"), l.src.Flags["columns"], last("into"), last("into-table"))
	l.everyPipeline(dashed, last)
	for _, pair := range l.src.Flags["plugin-env"] {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !strings.HasPrefix(name, pluginEnvPrefix) || !isVariable(name) {
			l.fail("--plugin-env", "", fmt.Errorf("expected %sNAME=VALUE", pluginEnvPrefix))
			continue
		}
		l.env[name] = value
	}
}

// layer sets every setting that get knows.
func (l *loader) layer(name string, get func(flag string) (value, place string, ok bool)) {
	given := map[string]bool{}
	for _, setting := range Settings() {
		value, place, ok := get(setting.Flag)
		if !ok {
			continue
		}
		if err := setting.set(l.cfg, value); err != nil {
			l.fail(place, setting.Path, err)
			continue
		}
		path := setting.Path
		if path == "" {
			path = setting.Flag
		}
		given[path] = true
		l.cfg.origins[path] = place
	}
	l.oneURL(name, func(path string) bool { return given[path] })
	// A string from here wins over a file from below, and the other way round.
	for _, other := range []struct{ set, drop string }{
		{"database.url", "database.url_file"},
		{"database.url_file", "database.url"},
		{"database.stream_url", "database.stream_url_file"},
		{"database.stream_url_file", "database.stream_url"},
	} {
		if given[other.set] && !given[other.drop] {
			l.drop(other.drop)
		}
	}
}

func (l *loader) drop(path string) {
	delete(l.cfg.origins, path)
	switch d := &l.cfg.Database; path {
	case "database.url":
		d.URL = ""
	case "database.url_file":
		d.urlFile = ""
	case "database.stream_url":
		d.StreamURL = ""
	case "database.stream_url_file":
		d.streamURLFile = ""
	}
}

// pipelines takes the pipelines of one layer; if there are any, they replace those of the layers below.
func (l *loader) pipelines(name func(flag string) string, lines []string, table string, columns []string, into,
	intoTable string,
) {
	var specs []pipeline.Spec
	failed := false
	for _, line := range lines {
		spec, err := ParsePipeline(line)
		if err != nil {
			l.fail(name("pipeline"), "", err)
			failed = true
			continue
		}
		specs = append(specs, spec)
	}
	if table != "" || len(columns) > 0 || into != "" || intoTable != "" {
		spec, err := Shortcut(table, columns, into, intoTable)
		if err != nil {
			place := ""
			if parse, ok := errors.AsType[*ParseError](err); ok {
				place = name(strings.TrimPrefix(parse.What, "--"))
			}
			l.fail(place, "", err)
			failed = true
		} else {
			specs = append(specs, spec)
		}
	}
	if len(specs) > 0 || failed {
		if n := len(l.cfg.Pipelines); n > 0 {
			l.warnings = append(l.warnings, fmt.Sprintf("%s replaces the %d pipelines that were configured before it",
				name("pipeline"), n))
		}
		l.cfg.Pipelines, l.cfg.searches = specs, nil
		maps.DeleteFunc(l.cfg.origins, func(path, _ string) bool { return strings.HasPrefix(path, "pipelines[") })
		l.cfg.origins["pipelines"] = name("pipeline")
		if len(lines) == 0 {
			l.cfg.origins["pipelines"] = name("table")
		}
	}
}

// everyPipeline takes what one layer says of the destinations of all pipelines that do not say it themselves.
func (l *loader) everyPipeline(name, value func(flag string) string) {
	for flag, set := range map[string]func(spec *pipeline.Spec, v string) error{
		"overwrite": func(spec *pipeline.Spec, v string) error {
			on, err := parseBool(v)
			spec.Overwrite = spec.Overwrite || on
			return err
		},
		"into-type": func(spec *pipeline.Spec, v string) (err error) {
			if spec.IntoType == "" {
				spec.IntoType, err = parseStored(v)
			}
			return err
		},
		"index": func(spec *pipeline.Spec, v string) (err error) {
			if spec.Index == "" {
				spec.Index, err = parseIndex(v)
			}
			return err
		},
	} {
		v := value(flag)
		if v == "" {
			continue
		}
		if err := set(&pipeline.Spec{}, v); err != nil {
			l.fail(name(flag), "", err)
			continue
		}
		for i := range l.cfg.Pipelines {
			_ = set(&l.cfg.Pipelines[i], v) // it was read a moment ago
		}
	}
}

// secrets reads the files that hold connection strings.
func (l *loader) secrets() {
	for _, f := range []struct {
		path, file string
		field      *string
	}{
		{"database.url_file", l.cfg.Database.urlFile, &l.cfg.Database.URL},
		{"database.stream_url_file", l.cfg.Database.streamURLFile, &l.cfg.Database.StreamURL},
	} {
		if f.file == "" {
			continue
		}
		const limit = 64 << 10
		data, err := readLimited(f.file, limit)
		if err == nil && strings.TrimSpace(string(data)) == "" {
			err = fmt.Errorf("the file %s is empty", f.file)
		}
		if err != nil {
			l.fail(l.cfg.Origin(f.path), f.path, fmt.Errorf("read the connection string: %w", err))
			continue
		}
		*f.field = strings.TrimSpace(string(data))
	}
}

func readLimited(name string, limit int64) (data []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, limit))
}

// readOurs reads a file that may name programs to run, and returns who may write it: nobody where it is no file, such
// as /dev/null, which names nothing.
func readOurs(name string, limit int64) (data []byte, mode fs.FileMode, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if info.Mode().IsRegular() {
		mode = info.Mode()
	}
	data, err = io.ReadAll(io.LimitReader(f, limit))
	return data, mode, err
}

// everybodys reports whether every user of the machine may write a file, or put another into the place of what a
// folder holds.
func everybodys(mode fs.FileMode) bool {
	const others = 0o002
	return mode.Perm()&others != 0 && mode&fs.ModeSticky == 0
}

// finish fills in what depends on other settings.
func (l *loader) finish() {
	c := l.cfg
	for i := range c.Models {
		c.Models[i].choosePlugin(c.Plugins.Default)
		c.Models[i].settle(c.settling[i], func(name string, err error) {
			path := index("models", i) + "." + name
			l.problems = append(l.problems, Problem{Path: path, Place: c.place(path), Message: redactText(shown(err))})
		})
	}
	c.settling = nil
	c.settlePipelines()
}

// UsePipelines takes the place of what was configured, as flags would.
func (c *Config) UsePipelines(specs ...pipeline.Spec) {
	c.Pipelines, c.searches = specs, nil
	maps.DeleteFunc(c.origins, func(path, _ string) bool { return strings.HasPrefix(path, "pipelines[") })
	c.settlePipelines()
}

// settlePipelines fills in what pipelines do not say.
func (c *Config) settlePipelines() {
	for i := range c.Pipelines {
		spec := &c.Pipelines[i]
		spec.ColumnLists = c.Publication.ColumnLists
		if spec.Model == "" {
			spec.Model = c.DefaultModel
		}
		if m := c.model(spec.Model); m != nil && spec.Plugin == "" {
			spec.Plugin = m.Plugin
		}
		if spec.Plugin == "" {
			spec.Plugin = c.Plugins.Default
		}
		if spec.Model == "" {
			spec.Model = manifest.For(spec.Plugin).Model.Default
		}
		if spec.Chunking.On() && spec.Chunking.Tokens == 0 {
			spec.Chunking.Tokens = pipeline.DefaultChunkTokens
		}
	}
	nameAll(c.Pipelines)
}

// LongName is the name of a pipeline when the one of its table is taken: "public.docs:embedding".
func LongName(spec pipeline.Spec) string {
	destination := quoteIdent(spec.IntoColumn)
	if !spec.InSource() {
		destination = tableName(spec.IntoSchema, spec.IntoTable)
	}
	return tableName(spec.Schema, spec.Table) + ":" + destination
}

// nameAll gives names to pipelines that have none or share one with an earlier pipeline. The first on a table is named
// after the table, "public.docs", the others after table and destination, "public.docs:embedding".
func nameAll(specs []pipeline.Spec) {
	taken := map[string]bool{}
	for _, spec := range specs {
		if spec.Name != "" && spec.Name != tableName(spec.Schema, spec.Table) {
			taken[spec.Name] = true
		}
	}
	for i := range specs {
		spec := &specs[i]
		plain := tableName(spec.Schema, spec.Table)
		if spec.Name != "" && spec.Name != plain {
			continue
		}
		spec.Name = plain
		if taken[plain] {
			spec.Name = LongName(*spec)
		}
		taken[spec.Name] = true
	}
}

// instanceOf makes a name of a host's name, which may hold what an instance's name may not, and of the process's
// number, if that is given.
func instanceOf(host string, pid int) string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, host)
	if name == "" {
		name = "sidecar"
	}
	suffix := ""
	if pid > 0 {
		suffix = "-" + strconv.Itoa(pid)
	}
	limit := maxIdent - len("embedsidecar/") - len(suffix)
	return name[:min(len(name), limit)] + suffix
}
