package dialect

import (
	"encoding/json"
	"maps"
)

// Texts are the fields that hold the texts, in any of the dialects.
var Texts = []string{"input", "inputs", "texts", "requests", "query", "documents", "instances"}

// request is what is sent, by the names of its fields.
type request map[string]any

// with sets a field.
func (b request) with(name string, value any) request {
	b[name] = value
	return b
}

// wide asks for a width; 0 is the model's own, and is not asked for.
func (b request) wide(name string, dims int) request {
	if dims > 0 {
		b[name] = dims
	}
	return b
}

// cutTEI says how TEI cuts long texts.
func (r Request) cutTEI(b request) request {
	return b.with("truncate", r.Truncate != CutNever).
		with("truncation_direction", either(r.Truncate == CutStart, "Left", "Right"))
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// Merge puts fields into others: an object into the object of its name, all else in place of what is there. A field
// that is null stays null, to take one away that comes before it.
func Merge(into, fields map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for name, value := range fields {
		inner, is := value.(map[string]any)
		before, was := into[name].(map[string]any)
		if is && was {
			into[name] = Merge(maps.Clone(before), inner)
			continue
		}
		into[name] = value
	}
	return into
}

// Write is a request as JSON, with a user's fields in it; null takes a field away.
func Write(body any, fields map[string]any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil || len(fields) == 0 {
		return data, err
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	all = Merge(all, fields)
	dropNulls(all)
	return json.Marshal(all)
}

func dropNulls(all map[string]any) {
	for name, value := range all {
		if inner, is := value.(map[string]any); is {
			dropNulls(inner)
		} else if value == nil {
			delete(all, name)
		}
	}
}
