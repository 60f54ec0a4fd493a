package dialect

import (
	"encoding/json"
	"maps"
)

// Texts are the fields that hold the texts, in any of the dialects.
var Texts = []string{"input", "inputs", "texts", "requests", "query", "documents", "instances"}

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
