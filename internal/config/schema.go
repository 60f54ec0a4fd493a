package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// schema is what may stand at one place of the file: a value, a list of values, a mapping, or a list of schemas.
// Several may be set.
type schema struct {
	value  func(string) error
	list   func([]string) error
	fields map[string]*schema
	item   func(i int) *schema
}

// want names what may stand here, for messages.
func (s *schema) want() string {
	var forms []string
	if s.value != nil {
		forms = append(forms, "a value")
	}
	if s.list != nil || s.item != nil {
		forms = append(forms, "a list")
	}
	if s.fields != nil {
		forms = append(forms, "keys and values")
	}
	return strings.Join(forms, " or ")
}

// keys names what a mapping has, for whoever gave a single value in its place.
func (s *schema) keys() string {
	if len(s.fields) == 0 {
		return ""
	}
	return ": its keys are " + strings.Join(slices.Sorted(maps.Keys(s.fields)), ", ")
}

// field returns the schema at a dotted path below s, making the mappings on the way.
func (s *schema) field(path string) *schema {
	for name := range strings.SplitSeq(path, ".") {
		if s.fields == nil {
			s.fields = map[string]*schema{}
		}
		next, ok := s.fields[name]
		if !ok {
			next = &schema{}
			s.fields[name] = next
		}
		s = next
	}
	return s
}

// fileSchema is the whole file; what is read goes to c.
func fileSchema(c *Config) *schema {
	root := &schema{}
	root.field("version").value = fileVersion
	for _, setting := range Settings() {
		if setting.Path != "" {
			root.field(setting.Path).value = func(v string) error { return setting.set(c, v) }
		}
	}
	root.field("models").item = func(i int) *schema {
		c.Models = append(c.Models, Model{})
		s := modelSchema(&c.Models[i])
		c.settling = append(c.settling, c.Models[i].Settings.addTo(s))
		return s
	}
	root.field("plugins.catalog").item = func(i int) *schema {
		c.Plugins.Catalog = append(c.Plugins.Catalog, Plugin{})
		return pluginSchema(&c.Plugins.Catalog[i])
	}
	root.field("pipelines").item = func(i int) *schema {
		c.Pipelines, c.searches = append(c.Pipelines, newSpec()), append(c.searches, Search{})
		s := pipelineSchema(&c.Pipelines[i])
		searchSchema(s.field("search"), &c.searches[i])
		return s
	}
	return root
}

func fileVersion(v string) error {
	if v != "1" {
		return fmt.Errorf("this program knows version 1 of the file, not %q", v)
	}
	return nil
}

func modelSchema(m *Model) *schema {
	s := &schema{}
	s.field("name").value = into(&m.Name)
	s.field("plugin").value = into(&m.Plugin)
	s.field("path").value = into(&m.Path)
	s.field("sha256").value = intoSum(&m.SHA256)
	s.field("threads").value = func(v string) (err error) {
		m.Threads, err = parseAuto(v, maxThreads)
		return err
	}
	s.field("price").value = func(v string) (err error) {
		if m.Price, err = strconv.ParseFloat(v, 64); err != nil || !(m.Price > 0 && m.Price <= maxPrice) {
			return fmt.Errorf("expected the price of a million tokens, a number above 0, not %q", v)
		}
		return nil
	}
	return s
}

func pluginSchema(p *Plugin) *schema {
	s := &schema{}
	s.field("name").value = into(&p.Name)
	s.field("path").value = into(&p.Path)
	s.field("sha256").value = intoSum(&p.SHA256)
	s.field("version").value = into(&p.Version)
	s.field("processes").value = func(v string) (err error) {
		p.Processes, err = parseInt(v, 1, maxProcesses)
		return err
	}
	s.field("memory_limit").value = func(v string) (err error) {
		p.MemoryLimit, err = parseSize(v, minMemory, maxMemory)
		return err
	}
	s.field("call_timeout").value = func(v string) (err error) {
		p.CallTimeout, err = parseDuration(v, minCallTimeout, maxCallTimeout)
		return err
	}
	s.field("env").list = func(names []string) error {
		for i, name := range names {
			if !isVariable(name) {
				return &itemError{i, fmt.Errorf("%q is no name of a variable", name)}
			}
		}
		p.Env = names
		return nil
	}
	return s
}

func pipelineSchema(spec *pipeline.Spec) *schema {
	s := &schema{value: func(v string) (err error) {
		*spec, err = ParsePipeline(v)
		return err
	}}
	s.field("name").value = into(&spec.Name)
	s.field("table").value = func(v string) (err error) {
		if spec.Schema, spec.Table, err = parseTable("", v); err == nil && spec.Schema == "" {
			spec.Schema = defaultSchema
		}
		return err
	}
	columns := s.field("columns")
	columns.value = func(v string) (err error) {
		spec.Columns, err = parseColumns("", v)
		return err
	}
	columns.list = func(names []string) error {
		for i, name := range names {
			column, err := parseIdent("", name)
			if err != nil {
				return &itemError{i, err}
			}
			spec.Columns = append(spec.Columns, column)
		}
		return nil
	}
	s.field("text").value = intoExpression(&spec.Text)
	s.field("where").value = intoExpression(&spec.Filter)
	s.field("model").value = into(&spec.Model)
	s.field("plugin").value = into(&spec.Plugin)
	s.field("into.column").value = func(v string) (err error) {
		spec.IntoColumn, err = parseIdent("", v)
		return err
	}
	s.field("into.table").value = func(v string) (err error) {
		spec.IntoSchema, spec.IntoTable, err = parseTable("", v)
		return err
	}
	s.field("into.type").value = func(v string) (err error) {
		spec.IntoType, err = parseStored(v)
		return err
	}
	s.field("index").value = func(v string) (err error) {
		spec.Index, err = parseIndex(v)
		return err
	}
	s.field("priority").value = func(v string) error {
		lane, err := parseLane(v)
		if err == nil {
			spec.Priority = lane
		}
		return err
	}
	s.field("active").value = func(v string) (err error) {
		spec.Active, err = pipeline.ParseHours(v)
		return err
	}
	chunkingSchema(s.field("chunking"), &spec.Chunking)
	s.field("enabled").value = intoBool(&spec.Enabled)
	s.field("overwrite").value = intoBool(&spec.Overwrite)
	return s
}

// searchSchema reads `search: {filterable: [tenant, status], row_security: ignore}`.
func searchSchema(s *schema, search *Search) {
	s.field("filterable").list = func(names []string) error {
		for i, name := range names {
			column, err := parseIdent("", name)
			if err != nil {
				return &itemError{i, err}
			}
			search.Filterable = append(search.Filterable, column)
		}
		return nil
	}
	s.field("row_security").value = func(v string) error {
		search.PastRowSecurity = v == "ignore"
		if v != "ignore" && v != "respect" {
			return fmt.Errorf("expected respect or ignore, not %q", v)
		}
		return nil
	}
}

// itemError is a mistake in one element of a list.
type itemError struct {
	index int
	err   error
}

func (e *itemError) Error() string { return index("", e.index) + ": " + e.err.Error() }

func into(field *string) func(string) error {
	return func(v string) error {
		if v == "" || strings.ContainsRune(v, 0) {
			return errors.New("expected a text that is not empty")
		}
		*field = v
		return nil
	}
}

func intoExpression(field *string) func(string) error {
	return func(v string) error {
		if strings.TrimSpace(v) == "" || strings.ContainsRune(v, 0) || invalidAt(v) >= 0 {
			return errors.New("expected an SQL expression")
		}
		*field = strings.TrimSpace(v)
		return nil
	}
}

func intoSum(field *string) func(string) error {
	return func(v string) error {
		digits, err := parseSHA256(v)
		if err == nil {
			*field = digits
		}
		return err
	}
}

func intoBool(field *bool) func(string) error {
	return func(v string) error {
		on, err := parseBool(v)
		if err == nil {
			*field = on
		}
		return err
	}
}

// index writes the path of an element of a list.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
