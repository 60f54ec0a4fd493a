package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Declared is a pipeline that is configured in the database instead of a file.
type Declared struct {
	Name       string
	Definition string // JSON, with the keys of a pipeline in the file
	RequestID  int64  // the last request that changed it
}

// declaredOrigin is the origin of the settings of a declared pipeline.
const declaredOrigin = "sql"

// Base returns the configuration of the file, without declared pipelines.
func (c *Config) Base() *Config {
	if c = c.Written(); c.base != nil {
		return c.base
	}
	return c
}

// IsDeclared reports whether the pipeline with a name is a declared one.
func (c *Config) IsDeclared(name string) bool {
	return c.base != nil && slices.ContainsFunc(c.Written().Pipelines[len(c.base.Pipelines):],
		func(p pipeline.Spec) bool { return p.Name == name })
}

// Pipeline returns the configured pipeline with a name; nil: there is none.
func (c *Config) Pipeline(name string) *pipeline.Spec {
	for i := range c.Pipelines {
		if c.Pipelines[i].Name == name {
			return &c.Pipelines[i]
		}
	}
	return nil
}

// RequestOf returns the number of the last request that changed a declared pipeline.
func (c *Config) RequestOf(name string) int64 { return c.Written().asked[name] }

// Declaring returns the configuration with its own pipelines and these declared ones. It leaves out those with
// mistakes: failed has an *Error for each by name. Declared pipelines may only name what is configured, and get no
// environment, because the role that declares one must not choose programs, files or addresses.
func (c *Config) Declaring(list []Declared) (next *Config, failed map[string]error) {
	base := c.Base()
	if failed = map[string]error{}; len(list) == 0 {
		return base, failed
	}
	with := *base
	next = &with
	next.base = base
	next.Pipelines, next.searches, next.origins = slices.Clone(base.Pipelines), slices.Clone(base.searches),
		maps.Clone(base.origins)
	next.schemas, next.asked = slices.Clone(base.schemas), map[string]int64{}
	pipelines := filePlaces().fields["pipelines"].item
	for _, d := range list {
		at := len(next.Pipelines)
		next.asked[d.Name] = d.RequestID
		if problems := next.declare(d, pipelines); len(problems) > 0 {
			failed[d.Name] = &Error{Problems: problems}
			next.Pipelines, next.searches = next.Pipelines[:at], next.searches[:min(at, len(next.searches))]
			next.schemas = next.schemas[:min(at, len(next.schemas))]
			maps.DeleteFunc(next.origins, func(path string, _ origin) bool { return within(path, index("pipelines", at)) })
		}
	}
	return next, failed
}

// misleading reports whether a command, or a reader, could mistake a name for something else.
func misleading(name string) bool {
	first, _ := utf8.DecodeRuneInString(name)
	return !unicode.In(first, unicode.L, unicode.Nd) && first != '_' && first != '"' || IsPattern(name) ||
		strings.HasPrefix(name, pipeline.LabelPrefix) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, func(r rune) bool { return wording.Tricks(r) || r == '\n' || r == '\t' })
}

// within reports whether a path is equal to another or below it.
func within(path, above string) bool {
	rest, is := strings.CutPrefix(path, above)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// declare adds a pipeline, and returns its mistakes.
func (c *Config) declare(d Declared, pipelines *place) (problems []Problem) {
	i := len(c.Pipelines)
	path := index("pipelines", i)
	fail := func(at, format string, args ...any) {
		problems = append(problems, Problem{
			Path: strings.TrimPrefix(strings.TrimPrefix(at, path), "."), Message: fmt.Sprintf(format, args...),
		})
	}
	r := &reader{name: declaredOrigin, put: c.put, origins: map[string]origin{}}
	file, err := parse([]byte(d.Definition))
	if err != nil || len(file.Docs) != 1 || file.Docs[0].Body == nil {
		fail(path, "expected keys and values as JSON")
		return problems
	}
	_ = c.put(nil, path, nil, false) // makes the element, whatever it contains
	r.walk(file.Docs[0].Body, path, pipelines, 1)
	for at := range r.origins {
		c.origins[at] = origin{place: declaredOrigin}
	}
	for _, p := range r.problems {
		fail(p.Path, "%s", p.Message)
	}
	spec := &c.Pipelines[i]
	if len(c.schemas) > i && (c.schemas[i].Match != "" || len(c.schemas[i].Except) > 0) {
		fail(path+".schemas", "a pipeline that is declared by SQL or HTTP has one table")
	}
	if spec.Name != d.Name {
		fail(path+".name", "expected the name of the pipeline, %q", d.Name)
	}
	if misleading(d.Name) {
		fail(path+".name", "%q could be taken for a flag, a pattern, a label or another name: choose one that begins with "+
			"a letter, a digit or _, has no * and no ?, and no spaces at its ends", d.Name)
	}
	for _, n := range []struct {
		key, name string
		known     bool
	}{
		{"plugin", spec.Plugin, c.plugs(spec.Plugin)},
		{"model", spec.Model, c.models(spec.Model)},
		{"search.rerank", c.SearchOf(spec.Name).Rerank, c.models(c.SearchOf(spec.Name).Rerank)},
	} {
		if n.name != "" && !n.known {
			fail(path+"."+n.key, "%q is not configured: a pipeline that is declared by SQL or HTTP names what the "+
				"configuration of the sidecar has", n.name)
		}
	}
	if len(problems) > 0 { // no follow-up errors, and no check of folders that a stranger named
		return problems
	}
	c.settleFrom(i)
	c.checkPipelines(i, fail)
	return problems
}

// plugs and models report whether the configuration itself names a plugin or a model.
func (c *Config) plugs(name string) bool {
	return c.Plugin(name) != nil || name == c.Plugins.Default ||
		slices.ContainsFunc(c.Models, func(m Model) bool { return m.Plugin == name }) ||
		slices.ContainsFunc(c.Base().Pipelines, func(p pipeline.Spec) bool { return p.Plugin == name })
}

func (c *Config) models(name string) bool {
	return c.model(name) != nil || name == c.DefaultModel || name == c.Rerank ||
		name == manifest.For(c.Plugins.Default).Model.Default ||
		slices.ContainsFunc(c.Base().Pipelines, func(p pipeline.Spec) bool { return p.Model == name })
}
