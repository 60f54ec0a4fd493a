// Package output writes results in the requested format: as a table, CSV, JSON or YAML, with colors and progress bars
// on a terminal. It writes to the given writer, and reads nothing.
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

// Form is an output format.
type Form string

// The formats.
const (
	Text Form = "table" // for users
	JSON Form = "json"
	YAML Form = "yaml"
	CSV  Form = "csv"
)

// Forms are all formats.
var Forms = []string{string(Text), string(JSON), string(YAML), string(CSV)}

// Printer writes results.
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

// List writes a list: in JSON and YAML an object with the list under its name, else a row for each element.
func List[T any](p *Printer, name string, list []T, columns []string, row func(*T) []any) error {
	return Each(p, map[string][]T{name: list}, list, columns, row)
}

// Each writes an object: in JSON and YAML the value, else a row for each element of a list.
func Each[T any](p *Printer, value any, list []T, columns []string, row func(*T) []any) error {
	return p.Show(value, func() Table { return Rows(list, columns, row) })
}

// One writes one object: in JSON and YAML the value, else a row.
func One(p *Printer, value any, columns []string, cells ...any) error {
	return p.Show(value, func() Table { return Row(columns, cells...) })
}

// Encoder returns a JSON encoder that does not escape < and &, for readability.
func Encoder(to io.Writer) *json.Encoder {
	encoder := json.NewEncoder(escaper{to})
	encoder.SetEscapeHTML(false)
	return encoder
}

// ForPeople reports whether the output is for users, so that text other than data is allowed.
func (p *Printer) ForPeople() bool { return p.Form == Text }

// Table is a table for users. Cells are printed with fmt.
type Table struct {
	// Columns are the headings. A heading with the prefix ">" is of numbers, which are right-aligned.
	Columns []string
	Rows    [][]any
}

// Rows makes a table with a row for each element.
func Rows[T any](list []T, columns []string, row func(*T) []any) Table {
	t := Table{Columns: columns}
	for i := range list {
		t.Rows = append(t.Rows, row(&list[i]))
	}
	return t
}

// Row makes a table with one row.
func Row(columns []string, cells ...any) Table { return Table{Columns: columns, Rows: [][]any{cells}} }

// Table writes rows as a table, or as CSV.
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
	if p.Form == CSV { // cells are unchanged, even if a spreadsheet takes them for formulas: keys may begin with -
		_, err := io.WriteString(p.To, w.RenderCSV()+"\n")
		return err
	}
	// Padding after the last column would be copied with the table.
	var b strings.Builder
	for line := range strings.SplitSeq(w.Render(), "\n") {
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(p.To, b.String())
	return err
}

// style is a table without borders: two spaces between columns.
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

// escaper adds the JSON escapes that encoding/json leaves out.
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

// quoter makes YAML quote and escape special characters.
type quoter struct{}

func (q quoter) Visit(node ast.Node) ast.Visitor {
	if n, ok := node.(*ast.StringNode); ok && strings.ContainsFunc(n.Value, wording.Tricks) {
		n.Token.Type = token.DoubleQuoteType
	}
	return q
}
