package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/owned"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Source has the inputs of Load.
type Source struct {
	// Flags are the given flags, without dashes, each with its values in order. Besides those of Settings it knows
	// config, plugin-env and those of PipelineFlags. Others are ignored.
	Flags   map[string][]string
	Environ []string
	// OtherFlags are flags of the program that are not settings; their variables cause no warning.
	OtherFlags []string
	// PID is the process ID. With Hostname it is the default of Instance, so that several sidecars of a host have
	// different names.
	PID int
	// Hostname is the first part of the default of Instance.
	Hostname string
	// Folder finds the folder of a model, as Finder.Model does: its content may determine the plugin. nil: it is not
	// searched for.
	Folder func(name, dir string, known ...string) (string, error)
}

// PipelineFlags are the flags, in addition to those of Settings, that describe pipelines.
func PipelineFlags() []string {
	return []string{"pipeline", "table", "columns", "into", "into-table", "index", "overwrite"}
}

// Reload loads a configuration again from its file. It does not read a pipe or a socket, which could block forever.
func Reload(src Source, file string) (cfg *Config, warnings []string, err error) {
	if info, err := os.Stat(file); err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return nil, nil, mistake(file + ": it is not a file that can be read again")
	}
	return Load(src)
}

// Load merges defaults, file, environment and flags, in increasing precedence, and checks the result. A list
// (pipelines) replaces that of a lower layer as a whole. The warnings are for a log; they and the error contain no
// password. The error is an *Error with all mistakes; the configuration then has the valid parts, including how to log.
func Load(src Source) (cfg *Config, warnings []string, err error) {
	l := &loader{cfg: Default(), src: src, env: map[string]string{}}
	l.cfg.folder = src.Folder
	for _, entry := range src.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			l.env[name] = value
		}
	}
	l.cfg.env = &environ{l.env}
	l.cfg.Instance = instanceOf(src.Hostname, src.PID)
	l.file()
	l.layer("the environment", (*Setting).Env, l.variable)
	l.unknownVariables()
	l.layer("the command line", flagOf, func(flag string) []string { return src.Flags[strings.TrimPrefix(flag, "--")] })
	l.openPasswords()
	l.secret("database.url_file", l.cfg.Database.URLFile, &l.cfg.Database.URL)
	l.secret("database.stream_url_file", l.cfg.Database.StreamURLFile, &l.cfg.Database.StreamURL)
	l.tenants()
	l.finish()
	for _, p := range l.cfg.check() {
		// A setting that could not be read is not also reported as missing.
		if !slices.ContainsFunc(l.problems, func(earlier Problem) bool { return related(earlier.Path, p.Path) }) {
			l.problems = append(l.problems, p)
		}
	}
	if len(l.problems) > 0 {
		return l.cfg, l.warnings, &Error{Problems: l.problems}
	}
	return l.cfg, l.warnings, nil
}

// related reports whether two paths are equal or one is below the other.
func related(a, b string) bool { return a != "" && b != "" && (within(a, b) || within(b, a)) }

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

// variable returns the values of a variable. Pipelines are one per line. An empty variable counts as unset.
func (l *loader) variable(name string) (values []string) {
	if name != EnvName("pipeline") {
		return slices.DeleteFunc([]string{l.env[name]}, func(v string) bool { return v == "" })
	}
	for line := range strings.SplitSeq(l.env[name], "\n") {
		if strings.TrimSpace(line) != "" {
			values = append(values, line)
		}
	}
	return values
}

// flagOf returns the flag of a setting with dashes; "": none.
func flagOf(s *Setting) string {
	if s.Flag == "" {
		return ""
	}
	return "--" + s.Flag
}

func (l *loader) file() {
	name, place := last(l.variable(EnvName("config"))), EnvName("config")
	if given := l.src.Flags["config"]; len(given) > 0 {
		name, place = last(given), "--config"
	}
	if name == "" {
		return
	}
	data, mode, err := readOurs(name, maxFile+1)
	if err != nil {
		l.fail(place, "", fmt.Errorf("read the configuration: %w", err))
		return
	}
	l.chosenBy("what runs here, by the configuration", name, mode)
	l.cfg.file = name
	r := &reader{name: name, put: l.cfg.put, lookup: func(variable string) (string, bool) {
		value, ok := l.env[variable]
		return value, ok
	}}
	r.read(data, filePlaces())
	l.problems = append(l.problems, r.problems...)
	maps.Copy(l.cfg.origins, r.origins)
	l.exclude(name, func(path string) bool { _, ok := r.origins[path]; return ok })
}

// chosenBy warns of a file that other users can change. It does not refuse it, because files that some systems mount
// into a container look like this, without other users.
func (l *loader) chosenBy(what, name string, mode fs.FileMode) {
	if others, ok := errors.AsType[*owned.Error](owned.Check(name)); ok && mode != 0 {
		l.warnings = append(l.warnings, "other users control "+what+": "+others.Error())
	}
}

// exclude refuses two settings of one layer that exclude each other. One of this layer clears the other of lower
// layers.
func (l *loader) exclude(place string, has func(path string) bool) {
	drop := func(path string) {
		_ = l.cfg.put(settingAt(path), path, []string{""}, false) // an empty text is always valid
		delete(l.cfg.origins, path)
	}
	for _, s := range Settings() {
		switch other := s.Excludes; {
		case other == "":
		case has(s.Path) && has(other):
			l.fail(place, s.Path, fmt.Errorf("it excludes %s: give one of them", other))
		case has(s.Path):
			drop(other)
		case has(other):
			drop(s.Path)
		}
	}
}

// unknownVariables warns of variables that have our prefix but are unknown.
func (l *loader) unknownVariables() {
	known := []string{EnvName("config"), EnvName("failpoints")}
	for i := range Settings() {
		if name := Settings()[i].Env(); name != "" {
			known = append(known, name)
		}
	}
	for _, flag := range append(PipelineFlags(), l.src.OtherFlags...) {
		known = append(known, EnvName(flag))
	}
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		// Kubernetes sets variables for every Service, also for one named embedsidecar.
		foreign := strings.HasPrefix(name, envPrefix+"SERVICE_") || strings.HasPrefix(name, envPrefix+"PORT") ||
			strings.HasPrefix(name, pluginEnvPrefix) || strings.HasPrefix(name, envPrefix+"TEST_")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) && !foreign {
			warning := "the environment variable " + name + " is unknown and has no effect"
			if near := spelling.One(name, known); near != "" {
				warning += ": " + spelling.Question(near)
			}
			l.warnings = append(l.warnings, warning)
		}
	}
}

func (l *loader) openPasswords() {
	for _, flag := range []string{"database-url", "stream-url"} {
		for _, dsn := range l.src.Flags[flag] {
			if HasPassword(dsn) {
				l.warnings = append(l.warnings, fmt.Sprintf("--%s holds a password, which every user of this machine can read "+
					"in the list of processes: give it by %s or --%s-file", flag, EnvName(flag), flag))
			}
		}
	}
}

// layer applies the environment or the command line. place returns the name of a setting there.
func (l *loader) layer(name string, place func(*Setting) string, values func(place string) []string) {
	given := map[string]bool{}
	for i := range Settings() {
		s := &Settings()[i]
		if at := place(s); at != "" && len(values(at)) > 0 {
			value := last(values(at))
			if s.Path == "database.url" { // of several values, the first is the server of the others
				value = values(at)[0]
			}
			l.put(at, s, s.Path, value)
			given[s.Path] = true
		}
	}
	flag := func(name string) string { return place(&Setting{Flag: name}) }
	l.pipelines(flag, func(name string) []string { return values(flag(name)) })
	for _, pair := range l.src.Flags["set"] {
		if flag("set") == "--set" {
			given[l.set("--set", pair)] = true
		}
	}
	l.exclude(name, func(path string) bool { return given[path] })
}

func (l *loader) put(place string, s *Setting, path, value string) {
	if err := l.cfg.put(s, path, []string{value}, false); err != nil {
		l.fail(place, path, err)
		return
	}
	l.cfg.origins[path] = origin{place: place}
}

// set applies KEY=VALUE, for any key of the file, and returns the key. List elements must exist.
func (l *loader) set(place, pair string) (path string) {
	path, value, ok := strings.Cut(pair, "=")
	s := settingAt(path)
	i, list, _ := elementOf(path)
	switch {
	case !ok:
		l.fail(place, "", fmt.Errorf("expected KEY=VALUE, as in lease=1m"))
	case s == nil || strings.HasSuffix(path, "[]") || strings.Contains(path, "[].") || types[s.Type] == nil:
		names := lists.Map(Settings(), func(s Setting) string { return s.Path })
		message := fmt.Sprintf("unknown key %q", path)
		if near := spelling.One(path, names); near != "" {
			message += ": " + spelling.Question(near)
		}
		l.fail(place, "", errors.New(message))
	case i >= l.cfg.count(list):
		l.fail(place, path, errors.New("there is no such element"))
	default:
		l.put(place, s, path, value)
	}
	return path
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// pipelines reads the pipelines of one layer; if there are any, they replace those of lower layers.
func (l *loader) pipelines(place func(flag string) string, values func(flag string) []string) {
	var specs []pipeline.Spec
	from := ""
	for _, line := range values("pipeline") {
		spec, err := ParsePipeline(line)
		if from = "pipeline"; err != nil {
			l.fail(place(from), "", err)
			continue
		}
		specs = append(specs, spec)
	}
	table, into, intoTable := last(values("table")), last(values("into")), last(values("into-table"))
	if table != "" || len(values("columns")) > 0 || into != "" || intoTable != "" {
		from = cmp.Or(from, "table")
		spec, err := Shortcut(table, values("columns"), into, intoTable)
		if parse, ok := errors.AsType[*ParseError](err); ok {
			l.fail(place(strings.TrimPrefix(parse.What, "--")), "", err)
		} else if err != nil {
			l.fail("", "", err)
		} else {
			specs = append(specs, spec)
		}
	}
	if from != "" {
		if n := len(l.cfg.Pipelines); n > 0 {
			l.warnings = append(l.warnings, fmt.Sprintf("%s replaces the %d pipelines that were configured before it",
				place("pipeline"), n))
		}
		l.cfg.replacePipelines(specs)
		l.cfg.origins["pipelines"] = origin{place: place(from)}
	}
	for _, key := range []string{"index", "overwrite"} { // for pipelines that do not set them
		v, s := last(values(key)), settingAt("pipelines[]."+key)
		if v == "" {
			continue
		}
		if err := s.put(reflect.ValueOf(&pipeline.Spec{}).Elem(), v); err != nil {
			l.fail(place(key), "", err)
			continue
		}
		for i := range l.cfg.Pipelines {
			if path := index("pipelines", i) + "." + key; l.cfg.Origin(path) == "default" {
				_ = s.put(l.cfg.owner(path), v) // it was already parsed once
			}
		}
	}
}

// secret reads a file with a connection string, if it is configured.
func (l *loader) secret(path, file string, field *string) {
	if file == "" {
		return
	}
	const limit = 64 << 10
	data, mode, err := readOurs(file, limit)
	if err == nil && strings.TrimSpace(string(data)) == "" {
		err = fmt.Errorf("the file %s is empty", file)
	}
	if err != nil {
		l.fail(l.cfg.Origin(path), path, fmt.Errorf("read the connection string: %w", err))
		return
	}
	l.chosenBy("the database, by "+path, file, mode)
	*field = strings.TrimSpace(string(data))
	if l.cfg.Database.files == nil {
		l.cfg.Database.files = map[string]string{}
	}
	l.cfg.Database.files[*field] = file
}

// readOurs reads a file that may name programs to run, and returns its mode: 0 if it is not a regular file, such as
// /dev/null, which names nothing.
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

// finish sets what depends on other settings.
func (l *loader) finish() {
	c := l.cfg
	for i := range c.Models {
		c.Models[i].settle(c.Plugins.Default, c.told[i], c.env, func(name string, err error) {
			l.problems = append(l.problems, c.problem(index("models", i)+"."+name, redactText(shown(err))))
		})
	}
	c.told = nil
	c.settlePipelines()
}

// UsePipelines replaces the configured pipelines, as flags would.
func (c *Config) UsePipelines(specs ...pipeline.Spec) {
	c.replacePipelines(specs)
	c.settlePipelines()
}

func (c *Config) replacePipelines(specs []pipeline.Spec) {
	c.Pipelines, c.searches, c.schemas = specs, nil, nil
	maps.DeleteFunc(c.origins, func(path string, _ origin) bool { return strings.HasPrefix(path, "pipelines[") })
}

// settlePipelines sets the defaults of pipelines.
func (c *Config) settlePipelines() {
	c.settleFrom(0)
	nameAll(c.Pipelines)
}

func (c *Config) settleFrom(first int) {
	for i := first; i < len(c.Pipelines); i++ {
		spec := &c.Pipelines[i]
		spec.ColumnLists = c.Publication.ColumnLists
		spec.AutoSwitch = spec.AutoSwitch || spec.SwitchOverlap > 0
		if spec.Schema == "" && spec.Table != "" && c.schemasAt(i) == nil {
			spec.Schema = defaultSchema
		}
		if spec.Schema != "" {
			spec.Joins = spec.Joins.In(spec.Schema)
		}
		spec.Model = cmp.Or(spec.Model, c.DefaultModel)
		if m := c.model(spec.Model); m != nil && spec.Plugin == "" {
			spec.Plugin = c.byContent(c.folder, m.Plugin, c.folderOf(spec.Model))
		}
		named := spec.Plugin != ""
		if !named {
			spec.Plugin = c.Plugins.Default
		}
		spec.Model = cmp.Or(spec.Model, manifest.For(spec.Plugin).Model.Default)
		if !named {
			spec.Plugin = c.byContent(c.folder, spec.Plugin, c.folderOf(spec.Model))
		}
		spec.ModelBudget = c.BudgetOf(spec.Model)
		switch c := &spec.Chunking; {
		case c.ByCharacters() && c.Characters == 0 && c.Strategy != pipeline.ChunkWhole:
			c.Characters = pipeline.DefaultChunkCharacters
		case c.On() && !c.ByCharacters() && c.Tokens == 0:
			c.Tokens = pipeline.DefaultChunkTokens
		}
	}
}

// nameAll names pipelines without a name or with that of an earlier pipeline. The first one of a table gets the table's
// name, "public.docs", the others the names of table and destination, "public.docs:embedding".
func nameAll(specs []pipeline.Spec) {
	taken := map[string]bool{}
	for _, spec := range specs {
		if spec.Name != "" && spec.Schema != "" && spec.Name != tableName(spec.Schema, spec.Table) {
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
		if spec.Schema == "" { // In names the pipelines of each schema
			continue
		}
		if taken[plain] {
			spec.Name = LongName(*spec)
		}
		taken[spec.Name] = true
	}
}

// instanceOf makes an instance name from a host name, without invalid characters, and the process ID, if that is given.
func instanceOf(host string, pid int) string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, host)
	name = cmp.Or(name, "sidecar")
	suffix := ""
	if pid > 0 {
		suffix = "-" + strconv.Itoa(pid)
	}
	limit := maxIdent - len("embedsidecar/") - len(suffix)
	return name[:min(len(name), limit)] + suffix
}
