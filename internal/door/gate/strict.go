package gate

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
)

const (
	emptyField = "it is empty: leave it out if it does not matter"
	twice      = "it is given twice"
)

// vague rejects a query parameter that is empty, which must not mean the default, or repeated, since only the first
// value would be used. A malformed one would be left out.
func vague(raw string) *Problem {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return Wrong("query", "it is malformed: want NAME=VALUE, joined by &, with every other character as %XX")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch values := query[name]; {
		case slices.Contains(values, ""):
			return Wrong("query."+name, emptyField)
		case len(values) > 1 && !slices.Contains([]string{"pipeline", "state", "key"}, name):
			return Wrong("query."+name, twice)
		}
	}
	return nil
}

// hollow rejects a body with a duplicate or an empty field: a field that a script leaves empty must not mean
// everything. In a patch, null removes a value.
func hollow(body []byte, patch bool) *Problem {
	d := json.NewDecoder(bytes.NewReader(body))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil // the decoder reports that
	}
	seen := map[string]bool{}
	for d.More() {
		var value json.RawMessage
		name, err := d.Token()
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil
		}
		field, _ := name.(string)
		at := "body." + field
		switch inner := bytes.TrimSpace(bytes.Trim(value, "[]")); {
		case seen[strings.ToLower(field)]:
			return Wrong(at, twice)
		case patch && string(value) == "null":
		case len(inner) == 0, string(value) == "null", string(value) == `""`:
			return Wrong(at, emptyField)
		}
		seen[strings.ToLower(field)] = true
	}
	return nil
}
