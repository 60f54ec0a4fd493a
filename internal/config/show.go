package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Shown is a value of a configuration as it may be seen: without passwords and keys.
type Shown struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // "--slot", "EMBEDSIDECAR_SLOT", "embedsidecar.yaml:3:9" or "default"
}

// Show returns what is set, with where, or every value that counts, those that nobody has set among them.
func (c *Config) Show(all bool) []Shown {
	list := []Shown{}
	add := func(path, value, origin string) {
		if all && value != "" || origin != "default" {
			list = append(list, Shown{path, value, origin})
		}
	}
	for _, s := range Settings() {
		path := s.Path
		if path == "" {
			path = s.Flag
		}
		add(path, s.Value(c), c.Origin(path))
	}
	for i := range c.Models {
		m, at := &c.Models[i], index("models", i)
		parts := map[string]string{
			"name": m.Name, "plugin": m.Plugin, "path": m.Path, "sha256": m.SHA256, "threads": orAuto(m.Threads),
			"settings": m.Settings.String(),
		}
		if m.Price > 0 {
			parts["price"] = fmt.Sprint(m.Price)
		}
		c.showParts(at, parts, add)
	}
	for i := range c.Plugins.Catalog {
		p := &c.Plugins.Catalog[i]
		c.showParts(index("plugins.catalog", i), map[string]string{
			"name": p.Name, "path": p.Path, "sha256": p.SHA256, "version": p.Version, "env": strings.Join(p.Env, ", "),
		}, add)
	}
	for i := range c.Pipelines {
		c.showParts(index("pipelines", i), pipelineParts(c.Pipelines[i]), add)
	}
	return list
}

// showParts shows the parts of an element of a list.
func (c *Config) showParts(at string, parts map[string]string, add func(path, value, origin string)) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if parts[name] != "" {
			add(at+"."+name, parts[name], c.partOrigin(at, name))
		}
	}
}

// partOrigin tells where a part of an element was set: itself, or something below it. Table, columns and destination
// may come with the whole, in the form of one line.
func (c *Config) partOrigin(at, name string) string {
	path := at + "." + name
	for _, origin := range slices.Sorted(maps.Keys(c.origins)) {
		if origin == path || strings.HasPrefix(origin, path+".") || strings.HasPrefix(origin, path+"[") {
			return c.origins[origin]
		}
	}
	if slices.Contains([]string{"table", "columns", "into"}, name) {
		list, _, _ := strings.Cut(at, "[")
		return cmp.Or(c.origins[at], c.origins[list], "default")
	}
	return "default"
}

func orAuto(n int) string {
	if n == 0 {
		return "auto"
	}
	return fmt.Sprint(n)
}

// pipelineParts are the settings of a pipeline, as a file spells them.
func pipelineParts(p pipeline.Spec) map[string]string {
	if p.IntoSchema == "" && !p.InSource() {
		p.IntoSchema = p.Schema
	}
	parts := map[string]string{
		"name": p.Name, "table": tableName(p.Schema, p.Table), "text": p.Text, "where": p.Filter, "model": p.Model,
		"plugin": p.Plugin, "into": FormatDestination(p), "type": string(p.IntoType), "index": p.Index,
		"priority": lanes[p.Priority], "enabled": fmt.Sprint(p.Enabled), "chunking": chunkingText(p.Chunking),
	}
	columns := make([]string, len(p.Columns))
	for i, c := range p.Columns {
		columns[i] = quoteIdent(c)
	}
	parts["columns"] = strings.Join(columns, ", ")
	return parts
}

// chunkingText writes what a file says of chunks, in one line.
func chunkingText(c pipeline.Chunking) string {
	if !c.On() {
		return ""
	}
	text := fmt.Sprintf("%s, tokens: %d, overlap: %d", c.Strategy, c.Tokens, c.Overlap)
	if c.Context != "" {
		text += ", context: " + c.Context
	}
	if c.NoText {
		text += ", store_text: false"
	}
	return text
}

// Change is a part of a pipeline that is configured otherwise than it is set up.
type Change struct {
	Pipeline   string `json:"pipeline"`
	Part       string `json:"part"` // "" for the whole
	SetUp      string `json:"set_up"`
	Configured string `json:"configured"`
}

// Diff compares what is configured with what is set up. A pipeline that only one of them has is told as a whole.
func Diff(configured, setUp []pipeline.Spec) []Change {
	list := []Change{}
	found := map[string]bool{}
	for _, c := range configured {
		at := slices.IndexFunc(setUp, func(s pipeline.Spec) bool { return s.Name == c.Name })
		if at < 0 { // it has another name now
			at = slices.IndexFunc(setUp, func(s pipeline.Spec) bool {
				a, b := pipelineParts(c), pipelineParts(s)
				return a["table"] == b["table"] && a["into"] == b["into"]
			})
		}
		if at < 0 {
			list = append(list, Change{c.Name, "", "", FormatPipeline(c)})
			continue
		}
		found[setUp[at].Name] = true
		want, is := pipelineParts(c), pipelineParts(setUp[at])
		for _, part := range slices.Sorted(maps.Keys(want)) {
			if want[part] != is[part] && !slices.Contains([]string{"type", "index"}, part) { // of which nothing is written down
				list = append(list, Change{c.Name, part, is[part], want[part]})
			}
		}
	}
	for _, s := range setUp {
		if !found[s.Name] {
			list = append(list, Change{s.Name, "", FormatPipeline(s), ""})
		}
	}
	return list
}
