// Package output writes answers in the form that was asked for: as a table, CSV, JSON or YAML, with colours and bars
// where a terminal shows them. It writes to what it is given, and reads nothing.
package output

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Form is how an answer is written.
type Form string

// The forms.
const (
	Text Form = "table" // for people
	JSON Form = "json"
	YAML Form = "yaml"
	CSV  Form = "csv"
)

// Forms are all forms.
var Forms = []string{string(Text), string(JSON), string(YAML), string(CSV)}

// Printer writes answers.
type Printer struct {
	To      io.Writer
	Form    Form
	Compact bool // JSON in one line: for long lists of numbers
	Color   bool
}

// Show writes data: value as JSON or YAML, rows as a table or CSV.
func (p *Printer) Show(value any, rows func() Table) error {
	switch p.Form {
	case JSON:
		encoder := Encoder(p.To)
		if !p.Compact {
			encoder.SetIndent("", "  ")
		}
		return encoder.Encode(value)
	case YAML:
		node, err := yaml.ValueToNode(value, yaml.UseJSONMarshaler(), yaml.IndentSequence(true))
		if err != nil {
			return fmt.Errorf("print as YAML: %w", err)
		}
		ast.Walk(quoter{}, node)
		_, err = io.WriteString(p.To, node.String()+"\n")
		return err
	case Text, CSV:
	}
	return p.Table(rows())
}

// List writes a list: as JSON and YAML an object that has it by its name, or a row for each.
func List[T any](p *Printer, name string, list []T, columns []string, row func(*T) []any) error {
	return p.Show(map[string][]T{name: list}, func() Table { return Rows(list, columns, row) })
}

// One writes one thing: as JSON and YAML the value, or a row.
func One(p *Printer, value any, columns []string, cells ...any) error {
	return p.Show(value, func() Table { return Row(columns, cells...) })
}

// Encoder writes JSON that people read, too: < and & stay as they are.
func Encoder(to io.Writer) *json.Encoder {
	encoder := json.NewEncoder(escaper{to})
	encoder.SetEscapeHTML(false)
	return encoder
}

// ForPeople reports whether a person reads the answer: what is no data may stand beside it.
func (p *Printer) ForPeople() bool { return p.Form == Text }
