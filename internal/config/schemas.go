package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Written returns the configuration of the file: see In.
func (c *Config) Written() *Config { return cmp.Or(c.written, c) }

// InSchemas returns the tables of the pipelines with a pattern of schemas.
func (c *Config) InSchemas() (tables []string) {
	c = c.Written()
	for i := range c.schemas {
		if c.schemas[i].Match != "" && !slices.Contains(tables, c.Pipelines[i].Table) {
			tables = append(tables, c.Pipelines[i].Table)
		}
	}
	return tables
}

// InSchema returns the index in the file of the pipeline that the pipeline of a schema with this name comes from, or
// -1.
func (c *Config) InSchema(name string) int {
	c = c.Written()
	for i := range c.schemas {
		for _, its := range []string{c.Pipelines[i].Name, LongName(c.Pipelines[i])} {
			schema, is := strings.CutSuffix(name, "."+its)
			if id, err := parseIdent("", schema); is && err == nil && c.schemas[i].Takes(id) {
				return i
			}
		}
	}
	return -1
}

// In returns the configuration for a database with these schemas, the oldest first. It replaces each pipeline with a
// pattern of schemas by one for each matching schema that has its table, with the schema's name as prefix. Pipelines
// for one table take precedence over them, and earlier ones over later ones. It returns c itself if it was made for the
// same schemas.
func (c *Config) In(found []Schema) (in *Config, left Spread) {
	w := c.Written()
	if len(w.InSchemas()) == 0 {
		return w, left
	}
	found = slices.DeleteFunc(slices.Clone(found), func(its Schema) bool {
		return !slices.ContainsFunc(w.schemas, func(s Schemas) bool { return s.Takes(its.Name) })
	})
	if c != w && reflect.DeepEqual(c.found, found) {
		return c, c.left
	}
	c = w
	one := *c
	one.written, one.found, one.origins = c, found, maps.Clone(c.origins)
	one.replacePipelines(nil)
	taken := map[string]bool{} // names and destinations
	for i, spec := range c.Pipelines {
		if c.schemasAt(i) == nil {
			taken[spec.Name], taken[spec.DestinationName()] = true, true
		}
	}
	said := c.originsOfPipelines()
	add := func(i int, spec pipeline.Spec) (path string) {
		path = index("pipelines", len(one.Pipelines))
		one.Pipelines = append(one.Pipelines, spec)
		for part, o := range said[i] {
			one.origins[path+part] = o
		}
		return path
	}
	for i, spec := range c.Pipelines {
		s := c.schemasAt(i)
		if s == nil {
			add(i, spec)
			continue
		}
		matching := 0
		for _, schema := range found {
			if !s.Takes(schema.Name) {
				continue
			}
			if matching++; matching > c.Tenants.Schemas {
				continue
			}
			its := spec
			its.Schema, its.Name = schema.Name, quoteIdent(schema.Name)+"."+spec.Name
			its.Joins = spec.Joins.In(schema.Name)
			if !slices.Contains(schema.Tables, spec.Table) {
				left.Absent = append(left.Absent, tableName(schema.Name, spec.Table))
				continue
			}
			if destination := its.DestinationName(); !taken[destination] {
				if taken[its.Name] {
					its.Name = LongName(its)
				}
				taken[its.Name], taken[destination] = true, true
				one.origins[add(i, its)+".name"] = said[i][".schemas.match"]
			}
		}
		if matching == 0 {
			left.Unmet = append(left.Unmet, s.Match)
		}
		left.Beyond = max(left.Beyond, matching-c.Tenants.Schemas)
	}
	one.left = left
	return &one, left
}

// originsOfPipelines returns where the parts of each pipeline were set, by their paths in it.
func (c *Config) originsOfPipelines() []map[string]origin {
	parts := make([]map[string]origin, len(c.Pipelines))
	for i := range parts {
		parts[i] = map[string]origin{}
	}
	for path, o := range c.origins {
		if i, list, _ := elementOf(path); list == "pipelines" && i >= 0 && i < len(parts) {
			parts[i][strings.TrimPrefix(path, index(list, i))] = o
		}
	}
	return parts
}

// schemasAt returns the schemas of a pipeline of the file; nil: it has no pattern.
func (c *Config) schemasAt(i int) *Schemas {
	if i >= len(c.schemas) || c.schemas[i].Match == "" {
		return nil
	}
	return &c.schemas[i]
}

// checkSchemas checks the pattern of schemas of a pipeline of the file.
func (c *Config) checkSchemas(i int, fail func(path, format string, args ...any)) {
	path, spec := index("pipelines", i), &c.Pipelines[i]
	if i >= len(c.schemas) || c.schemas[i].Match == "" && len(c.schemas[i].Except) == 0 {
		return
	}
	s := &c.schemas[i]
	switch {
	case s.Match == "":
		fail(path+".schemas.match", "it is missing: a pattern of names, such as tenant_*")
	case systemSchema(s.Match):
		fail(path+".schemas.match", "%q is of the system: pg_*, information_schema and embedsidecar never match", s.Match)
	case slices.ContainsFunc(s.Except, func(but string) bool { return but == s.Match || strings.Trim(but, "*") == "" }):
		fail(path+".schemas.except", "it leaves no schema of %q", s.Match)
	}
	if spec.Schema != "" {
		fail(path+".table", "with schemas it is a name alone: write table: %s", quoteIdent(spec.Table))
	}
	if spec.IntoSchema != "" {
		fail(path+".into.table", "with schemas it is a name alone, because each schema has its own: write table: %s",
			quoteIdent(spec.IntoTable))
	}
}

// Rerankers returns the models for reranking in the searches of some pipelines, the global one first; without names,
// those of all pipelines.
func (c *Config) Rerankers(only []string) (names []string) {
	if len(only) == 0 {
		names = append(names, c.Rerank)
		for _, s := range c.Written().searches {
			names = lists.Add(names, s.Rerank)
		}
	}
	for _, name := range only {
		names = lists.Add(names, c.SearchOf(name).Rerank)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// SearchOf returns the search configuration of a pipeline.
func (c *Config) SearchOf(name string) Search {
	c = c.Written()
	at := slices.IndexFunc(c.Pipelines, func(s pipeline.Spec) bool { return s.Name == name })
	if at < 0 || c.schemasAt(at) != nil {
		at = c.InSchema(name)
	}
	if at < 0 || at >= len(c.searches) {
		return Search{Rerank: c.Rerank}
	}
	s := c.searches[at]
	s.Rerank = cmp.Or(s.Rerank, c.Rerank)
	return s
}
