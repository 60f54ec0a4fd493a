package config

import (
	"slices"
	"strings"
)

// JSONSchema describes the file for editors and validators, in the words of JSON Schema 2020-12. It is made of what
// reads the file, so it knows the same keys.
func JSONSchema() map[string]any {
	doc := describe(fileSchema(Default()))
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"] = "Configuration of embedsidecar"
	for _, s := range Settings() {
		if s.Path == "" {
			continue
		}
		at := doc
		for name := range strings.SplitSeq(s.Path, ".") {
			at = property(at, name)
		}
		at["description"] = s.Usage
		if value := s.Default(); value != "" {
			at["default"] = value
		}
		choices := strings.Split(s.Placeholder, "|")
		if s.Placeholder == "" {
			choices = []string{"true", "false"}
			at["default"] = s.Default() == "true"
		}
		if len(choices) > 1 && s.Placeholder == strings.ToLower(s.Placeholder) { // a variable may stand for any of them
			at["anyOf"] = []map[string]any{{"enum": words(choices)}, {"type": "string", "pattern": `\$\{`}}
			delete(at, "type")
		}
	}
	version := property(doc, "version")
	version["const"] = 1
	delete(version, "type")
	return doc
}

// words are choices as YAML has them.
func words(choices []string) (list []any) {
	for _, c := range choices {
		switch c {
		case "true", "false":
			list = append(list, c == "true")
		default:
			list = append(list, c)
		}
	}
	return list
}

// property returns what a schema says of one of its keys.
func property(of map[string]any, name string) map[string]any {
	properties, _ := of["properties"].(map[string]any)
	found, _ := properties[name].(map[string]any)
	return found
}

// describe says of each place of a file what may stand there.
func describe(s *schema) map[string]any {
	var forms []map[string]any
	if s.value != nil {
		forms = append(forms, map[string]any{"type": []string{"string", "number", "boolean"}})
	}
	if s.list != nil {
		forms = append(forms, map[string]any{
			"type": []string{"array", "null"}, "items": map[string]any{"type": []string{"string", "number", "boolean"}},
		})
	}
	if s.item != nil {
		forms = append(forms, map[string]any{"type": []string{"array", "null"}, "items": describe(s.item(0))})
	}
	if s.fields != nil {
		properties := map[string]any{}
		for name, field := range s.fields {
			properties[name] = describe(field)
		}
		forms = append(forms, map[string]any{
			"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false,
		})
	}
	if len(forms) == 1 {
		return forms[0]
	}
	return map[string]any{"anyOf": slices.Clip(forms)}
}
