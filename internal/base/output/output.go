// Package output writes answers in the form that was asked for: as a table, CSV, JSON or YAML, with colours and bars
// where a terminal shows them. It writes to what it is given, and reads nothing.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
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

// Table is a list as people read it. Cells are printed with fmt.
type Table struct {
	// Columns are the headings. One that begins with ">" is that of numbers, which stand at the right.
	Columns []string
	Rows    [][]any
}

// Rows makes a table with a row for each of a list.
func Rows[T any](list []T, columns []string, row func(*T) []any) Table {
	t := Table{Columns: columns}
	for i := range list {
		t.Rows = append(t.Rows, row(&list[i]))
	}
	return t
}

// Row is a table of one row.
func Row(columns []string, cells ...any) Table { return Table{Columns: columns, Rows: [][]any{cells}} }

// Table writes rows as a table, or as CSV when that is the form.
func (p *Printer) Table(t Table) error {
	w := table.NewWriter()
	w.SetStyle(style(p.Color))
	header := make(table.Row, len(t.Columns))
	var right []table.ColumnConfig
	for i, name := range t.Columns {
		heading, isNumber := strings.CutPrefix(name, ">")
		header[i] = heading
		if isNumber {
			right = append(right, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	w.SetColumnConfigs(right)
	w.AppendHeader(header)
	for _, row := range t.Rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cells[i] = wording.OneLine(fmt.Sprint(cell))
		}
		w.AppendRow(cells)
	}
	if p.Form == CSV { // cells are as they are, also where a spreadsheet takes them for formulas: keys begin with -, too
		_, err := io.WriteString(p.To, w.RenderCSV()+"\n")
		return err
	}
	// Spaces that fill up the last column are only in the way when the table is copied.
	var b strings.Builder
	for line := range strings.SplitSeq(w.Render(), "\n") {
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(p.To, b.String())
	return err
}

// style is a table without a frame: two spaces between columns.
func style(color bool) table.Style {
	s := table.StyleDefault
	s.Options = table.OptionsNoBordersAndSeparators
	s.Box.PaddingLeft, s.Box.PaddingRight = "", "  "
	s.Format.Header = text.FormatUpper
	if color {
		s.Color.Header = text.Colors{text.Bold}
	}
	return s
}

// escaper writes JSON with the escapes that encoding/json leaves out.
type escaper struct{ to io.Writer }

func (e escaper) Write(body []byte) (int, error) {
	var b bytes.Buffer
	for _, r := range string(body) {
		if !wording.Tricks(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, half)
		}
	}
	if _, err := e.to.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(body), nil
}

// quoter has YAML quote, with escapes, what it would print as it is.
type quoter struct{}

func (q quoter) Visit(node ast.Node) ast.Visitor {
	if n, ok := node.(*ast.StringNode); ok && strings.ContainsFunc(n.Value, wording.Tricks) {
		n.Token.Type = token.DoubleQuoteType
	}
	return q
}
