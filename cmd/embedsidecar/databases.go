package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
)

// answer is what a command says of one of several databases.
type answer struct {
	database string
	data     bytes.Buffer
	err      error
}

// text is the answer for people.
func (a *answer) text() string {
	text := strings.TrimRight(a.data.String(), "\n")
	if a.err != nil {
		text = strings.TrimLeft(text+"\n! "+a.err.Error(), "\n")
	}
	return text + "\n"
}

// showAll writes the answers as one, in the form that programs read.
func showAll(out *output.Printer, answers []*answer, redact func(string) string) error {
	switch out.Form {
	case output.JSON, output.YAML:
		list := []map[string]any{}
		for _, a := range answers {
			list = append(list, a.document(redact))
		}
		return out.Show(map[string]any{"databases": list}, nil)
	case output.CSV:
		return showCSV(out.To, answers)
	case output.Text: // each was shown when it was there
	}
	return nil
}

// document is the answer with the name of its database.
func (a *answer) document(redact func(string) string) map[string]any {
	doc := map[string]any{}
	body := bytes.TrimSpace(a.data.Bytes())
	var list []any
	switch {
	case len(body) == 0:
	case json.Unmarshal(body, &doc) == nil, yaml.Unmarshal(body, &doc) == nil:
	case json.Unmarshal(body, &list) == nil:
		doc = map[string]any{"answer": list}
	default:
		doc = map[string]any{"answer": string(body)}
	}
	doc["database"] = a.database
	if a.err != nil {
		doc["error"] = redact(a.err.Error())
	}
	return doc
}

// showCSV writes one table, whose first column is the database.
func showCSV(to io.Writer, answers []*answer) error {
	w := csv.NewWriter(to)
	for i, a := range answers {
		rows, err := csv.NewReader(&a.data).ReadAll()
		if err != nil || len(rows) == 0 {
			continue
		}
		if i == 0 {
			if err := w.Write(append([]string{"database"}, rows[0]...)); err != nil {
				return err
			}
		}
		for _, row := range rows[1:] {
			if err := w.Write(append([]string{a.database}, row...)); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
