package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

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
	rendered := w.Render
	if p.Form == CSV {
		rendered = w.RenderCSV
	}
	// Spaces that fill up the last column only get in the way of whoever copies the table.
	var b strings.Builder
	for line := range strings.SplitSeq(rendered(), "\n") {
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
