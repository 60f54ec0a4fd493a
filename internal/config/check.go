package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Validate returns all mistakes that can be found without a database, as an *Error, or nil. Load calls it.
func (c *Config) Validate() error {
	if problems := c.check(); len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return nil
}

func (c *Config) check() []Problem {
	var problems []Problem
	fail := func(path, format string, args ...any) {
		problems = append(problems, c.problem(path, fmt.Sprintf(format, args...)))
	}
	for _, dsn := range []struct{ path, value string }{
		{"database.url", c.Database.URL},
		{"database.stream_url", c.Database.StreamURL},
	} {
		if dsn.value == "" {
			continue
		}
		if _, err := ParseDSN(dsn.value); err != nil {
			path := dsn.path
			if _, ok := c.origins[path+"_file"]; ok {
				path += "_file"
			}
			fail(path, "%s", err)
		}
	}
	if c.Retry.Max < c.Retry.Initial {
		fail("retry.max", "%s is less than retry.initial, %s", formatDuration(c.Retry.Max), formatDuration(c.Retry.Initial))
	}
	switch q := c.Queries; {
	case q.NoAuth && q.TokensFile != "":
		fail("http.queries.no_auth", "no-auth and a file with tokens exclude each other")
	case (q.Cert == "") != (q.Key == ""):
		fail("http.queries.cert", "a certificate and its key belong together: give both, or neither")
	}
	switch a := c.Admin; {
	case (a.Cert == "") != (a.Key == ""):
		fail("http.admin.cert", "a certificate and its key belong together: give both, or neither")
	case a.ClientCA != "" && a.Cert == "":
		fail("http.admin.client_ca", "certificates of clients need one of the listener's: give http.admin.cert and http.admin.key")
	}
	c.checkTenants(fail)
	c.checkModels(fail)
	c.checkPipelines(0, fail)
	return problems
}

// Missing returns everything that is configured but does not exist, as an *Error, or nil: plugins, models, and the
// tokens file. This depends on the machine, so Load does not check it.
func (c *Config) Missing(find Finder) error {
	var problems []Problem
	for i, spec := range c.Pipelines {
		_, err := c.Embedder(find, spec.Plugin, spec.Model)
		missing, is := errors.AsType[*NotFoundError](err)
		switch {
		case is:
			message := fmt.Sprintf("%s %q not found", missing.Kind, missing.Name)
			if missing.Near != "" {
				message += "; " + spelling.Question(missing.Near)
			}
			problems = append(problems, c.problem(index("pipelines", i)+"."+missing.Kind, message))
		case err != nil:
			problems = append(problems, c.problem(index("pipelines", i), redactText(shown(err))))
		}
	}
	if path := c.Queries.TokensFile; path != "" {
		if _, err := os.Stat(path); err != nil {
			problems = append(problems, c.problem("auth.tokens_file", err.Error()+": embedsidecar token create makes it"))
		}
	}
	if len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return nil
}

// problem is a mistake at a path. Its place is where the path, or its nearest ancestor that was set, was set.
func (c *Config) problem(path, message string) Problem {
	p := Problem{Path: path, Message: message}
	for path != "" && p.Place == "" {
		o := c.origins[path]
		if p.Place = o.place; !strings.Contains(message, "\n") {
			p.Message = message + o.excerpt
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return p
}

func (c *Config) checkModels(fail func(path, format string, args ...any)) {
	checkNames("models", lists.Map(c.Models, func(m Model) string { return m.Name }), "pipelines name a model by it", fail)
	for i, m := range c.Models {
		if problem := m.Budget.Mistake(m.Price); problem != "" {
			fail(index("models", i)+".budget", "%s", problem)
		}
	}
	checkCatalog("plugins.catalog", c.Plugins.Catalog, fail)
}

// checkCatalog checks the list of plugins at a path.
func checkCatalog(at string, list []Plugin, fail func(path, format string, args ...any)) {
	names := lists.Map(list, func(p Plugin) string { return p.Name })
	checkNames(at, names, "models and pipelines name a plugin by it", fail)
}

// checkNames checks the names of the elements of a list.
func checkNames(at string, names []string, use string, fail func(path, format string, args ...any)) {
	for i, name := range names {
		if path := index(at, i) + ".name"; name == "" {
			fail(path, "it is missing: "+use)
		} else if slices.Contains(names[:i], name) {
			fail(path, "the name %q is given twice", name)
		}
	}
}

func (c *Config) checkPipelines(first int, fail func(path, format string, args ...any)) {
	const maxName = 200
	for i := first; i < len(c.Pipelines); i++ {
		spec := c.Pipelines[i]
		path := index("pipelines", i)
		if spec.Table == "" {
			fail(path+".table", "it is missing: name the source table")
			continue
		}
		c.checkSchemas(i, fail)
		if len(spec.Columns) == 0 && spec.Text == "" {
			fail(path+".columns", "they are missing: name the columns to embed, or give a text expression")
		}
		if len(spec.Columns) > 0 && spec.Text != "" {
			fail(path+".columns", "columns and text exclude each other: the text alone says what is embedded, so leave one out")
		}
		for j, column := range spec.Columns {
			if slices.Contains(spec.Columns[:j], column) {
				fail(path+".columns", "column %s is named twice", quoteIdent(column))
			}
		}
		long := len(spec.Name) > maxName || c.schemasAt(i) != nil && len(spec.Name) > maxName-maxIdent
		if long || invalidAt(spec.Name) >= 0 {
			fail(path+".name", "expected a name of at most %d bytes of UTF-8", maxName)
		}
		switch {
		case spec.IntoColumn == "" && spec.IntoTable == "":
			fail(path+".into", "it is missing: write into: {column: NAME} or into: {table: NAME}")
			continue
		case spec.IntoColumn != "" && spec.IntoTable != "":
			fail(path+".into", "column and table exclude each other: a pipeline has one destination")
			continue
		}
		if spec.Text == "" {
			if msg := conflict(spec); msg != "" {
				fail(path+".into", "%s", msg)
			}
		}
		for _, part := range []struct{ key, mistake string }{
			{"joins", strings.TrimPrefix(spec.Joins.Mistake(spec.Text), "joins")},
			{"index", strings.TrimPrefix(spec.IndexMistake(), "index: ")},
			{"ignore", spec.IgnoreMistake()},
			{"batch", spec.Batch.Mistake()},
			{"budget", spec.Budget.Mistake(c.PriceOf(spec.Model).Million)},
			{"chunking", spec.ChunkingMistake()},
		} {
			if part.mistake != "" {
				fail(path+"."+part.key, "%s", part.mistake)
			}
		}
		for j, other := range c.Pipelines[:i] {
			if c.schemasAt(i) != nil || c.schemasAt(j) != nil {
				continue // of one pipeline's schemas, the first takes precedence
			}
			if other.Name == spec.Name {
				fail(path+".name", "the name %q is that of %s already", spec.Name, index("pipelines", j))
			}
			if sameDestination(spec, other) {
				fail(path+".into", "%s writes to the same destination: two pipelines would overwrite each other's vectors",
					index("pipelines", j))
			}
		}
	}
}

// sameDestination reports whether two pipelines would overwrite each other's vectors. A missing destination is another
// error.
func sameDestination(a, b pipeline.Spec) bool {
	return (b.IntoColumn != "" || b.IntoTable != "") && a.DestinationName() == b.DestinationName()
}
