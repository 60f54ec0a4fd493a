package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// joinLevels is how many joins may stand one in the other.
const joinLevels = 2

// writtenJoin is a join as a file has it.
type writtenJoin struct {
	Table string            `json:"table"`
	On    map[string]string `json:"on"`
	Text  string            `json:"text"`
	As    string            `json:"as"`
	Joins []json.RawMessage `json:"joins"`
}

// parseJoins reads the joins of a pipeline, which come as JSON.
func parseJoins(text string) (pipeline.Joins, error) {
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, errors.New("expected a list of joins: [{table: tags, on: {article_id: id}, text: ...}]")
	}
	return joinsOf(list, "", 1)
}

func joinsOf(list []json.RawMessage, path string, level int) (joins pipeline.Joins, err error) {
	if level > joinLevels && len(list) > 0 {
		return nil, fmt.Errorf("%s: joins go %d levels deep", path, joinLevels)
	}
	for i, raw := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		j, err := joinOf(raw, at, level)
		if err != nil {
			return nil, err
		}
		joins = append(joins, j)
	}
	return joins, nil
}

func joinOf(raw json.RawMessage, at string, level int) (j pipeline.Join, err error) {
	fail := func(format string, args ...any) error { return fmt.Errorf(at+": "+format, args...) }
	var w writtenJoin
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return j, fail("%s: a join has table, on, text, as and joins", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch {
	case w.Table == "":
		return j, fail("table is missing: name the table whose rows have a part in the text")
	case len(w.On) == 0:
		return j, fail("on is missing: on: {COLUMN OF %s: COLUMN OF THE ROW}", w.Table)
	case strings.TrimSpace(w.Text) == "" || invalidAt(w.Text) >= 0 || strings.ContainsRune(w.Text, 0):
		return j, fail("text is missing: give SQL over the rows of %s, such as string_agg(name, ', ' ORDER BY name)", w.Table)
	}
	if j.Schema, j.Table, err = parseTable("table", w.Table); err != nil {
		return j, fail("table: %w", err)
	}
	if j.Text, j.As = strings.TrimSpace(w.Text), j.Table; w.As != "" {
		if j.As, err = parseIdent("as", w.As); err != nil {
			return j, fail("%w", err)
		}
	}
	for _, column := range slices.Sorted(maps.Keys(w.On)) {
		var on pipeline.On
		if on.Column, err = parseIdent("on", column); err == nil {
			on.Of, err = parseIdent("on", w.On[column])
		}
		if err != nil {
			return j, fail("%w", err)
		}
		j.On = append(j.On, on)
	}
	slices.SortFunc(j.On, func(a, b pipeline.On) int { return cmp.Compare(a.Column, b.Column) })
	j.Joins, err = joinsOf(w.Joins, at+".joins", level+1)
	return j, err
}

// joinsSchema is the JSON schema of a list of joins.
func joinsSchema(levels int) map[string]any {
	text := map[string]any{"type": "string"}
	keys := map[string]any{
		"table": text, "text": text, "as": text,
		"on": map[string]any{"type": "object", "additionalProperties": text, "minProperties": 1},
	}
	if levels > 1 {
		keys["joins"] = joinsSchema(levels - 1)
	}
	return map[string]any{"type": []string{"array", "null"}, "items": map[string]any{
		"type": "object", "properties": keys, "required": []string{"table", "on", "text"}, "additionalProperties": false,
	}}
}
