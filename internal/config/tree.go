package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// place is a node of a file's structure: a value or a list of values, a mapping, or a list of nodes.
type place struct {
	*Setting // of the value; nil: none

	fields map[string]*place
	item   *place
}

// below returns the node at a path below another, and makes missing ones.
func (p *place) below(path string) *place {
	for name := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(name, "[]")
		if p.fields == nil {
			p.fields = map[string]*place{}
		}
		if p.fields[name] == nil {
			p.fields[name] = &place{}
		}
		if p = p.fields[name]; list {
			if p.item == nil {
				p.item = &place{}
			}
			p = p.item
		}
	}
	return p
}

// filePlaces returns the structure of a configuration. A model accepts the settings of all manifests; Model.settle
// checks them.
func filePlaces() *place {
	root := &place{}
	for i := range Settings() {
		s := &Settings()[i]
		root.below(s.Path).Setting = s
	}
	for _, of := range manifest.All() {
		for _, s := range of.Settings {
			kind := "told"
			switch s.Type { //nolint:exhaustive // the others are single values
			case manifest.List:
				kind = "told list"
			case manifest.JSON:
				kind = toldJSON
			}
			root.below("models[]." + s.Name).Setting = &Setting{Path: "models[]." + s.Name, Type: kind}
		}
	}
	return root
}

// toldJSON is the type of a plugin setting with free-form keys and values.
const toldJSON = "told keys and values"

// takesKeys reports whether the node may hold free-form keys and values.
func (p *place) takesKeys() bool { return p.Setting != nil && (p.Type == toldJSON || p.takesLabels()) }

// takesLabels reports whether the node holds labels.
func (p *place) takesLabels() bool { return p.Setting != nil && p.Type == "labels" }

// takesJoins reports whether the node holds a list of joins.
func (p *place) takesJoins() bool { return p.Setting != nil && p.Type == "joins" }

// takesList and takesValue report whether the node may hold a list or a value.
func (p *place) takesList() bool {
	return p.item != nil || p.takesJoins() || p.Setting != nil && (itemTypes[p.Type] != nil || p.Type == "told list")
}

func (p *place) takesValue() bool {
	return p.Setting != nil && (types[p.Type] != nil || p.Type == "told") && !p.takesJoins() && !p.takesLabels()
}

// want describes the expected value, for messages.
func (p *place) want() string {
	var forms []string
	if p.takesValue() {
		forms = append(forms, "a value")
	}
	if p.takesList() {
		forms = append(forms, "a list")
	}
	if p.fields != nil || p.takesKeys() {
		forms = append(forms, "keys and values")
	}
	return strings.Join(forms, " or ")
}

// keys returns the keys of a mapping.
func (p *place) keys() []string { return slices.Sorted(maps.Keys(p.fields)) }

// indexes matches list indexes in a path.
var indexes = regexp.MustCompile(`\[[0-9]+\]`)

// JSONSchema describes the file for editors and validators, in JSON Schema 2020-12. It is generated from the same table
// that the reader of the file uses.
func JSONSchema() map[string]any {
	doc := filePlaces().schema()
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"] = "Configuration of embedsidecar"
	return doc
}

// schema returns the JSON schema of a node.
func (p *place) schema() map[string]any {
	var forms []map[string]any
	scalar := map[string]any{"type": []string{"string", "number", "boolean"}}
	switch {
	case p.takesJoins():
		forms = append(forms, joinsSchema(joinLevels))
	case p.takesLabels():
		forms = append(forms, map[string]any{"type": "object", "additionalProperties": scalar})
	case p.takesKeys():
		forms = append(forms, map[string]any{"type": "object"})
	case !p.takesValue():
	case p.Type == "version":
		forms = append(forms, map[string]any{"const": 1})
	case p.Type == "bool" || len(p.Choices) > 0: // a variable may stand for any of them
		choices := p.Choices
		if p.Type == "bool" {
			choices = []string{"true", "false"}
		}
		words := []any{}
		for _, c := range choices {
			words = append(words, c)
			if c == "true" || c == "false" {
				words = append(words, c == "true")
			}
		}
		other := `\$\{`
		if p.Type == "urgency" { // or an expression
			other += `|[\s(]`
		}
		forms = append(forms, map[string]any{"enum": words}, map[string]any{"type": "string", "pattern": other})
	default:
		forms = append(forms, scalar)
	}
	if p.takesList() && !p.takesJoins() {
		items := scalar
		if p.item != nil {
			items = p.item.schema()
		}
		forms = append(forms, map[string]any{"type": []string{"array", "null"}, "items": items})
	}
	if p.fields != nil {
		properties := map[string]any{}
		for name, field := range p.fields {
			properties[name] = field.schema()
		}
		forms = append(forms, map[string]any{
			"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false,
		})
	}
	doc := map[string]any{"anyOf": forms}
	if len(forms) == 1 {
		doc = forms[0]
	}
	if p.Setting == nil || p.Usage == "" {
		return doc
	}
	doc = maps.Clone(doc) // a setting at several places is described at each
	doc["description"] = p.Usage
	if value := p.Default(); value != "" {
		doc["default"] = value
		if p.Type == "bool" {
			doc["default"] = value == "true"
		}
	}
	return doc
}
