package output

import (
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// A name from a database cannot break out of its line, nor control a terminal.
func TestList(t *testing.T) {
	t.Parallel()
	type row struct {
		Name string `json:"name"`
		Rows int    `json:"rows"`
	}
	list := []row{{"public.docs", 1204}, {"evil\x1b[31m\n<name>", 3}}
	for _, test := range []struct {
		printer Printer
		list    []row
		want    string
	}{
		{Printer{Form: Text}, list, "PIPELINE          ROWS\npublic.docs       1204\nevil�[31m <name>     3\n"},
		{Printer{Form: Text, Color: true}, nil, "\x1b[1mPIPELINE  \x1b[0m\x1b[1mROWS  \x1b[0m\n"},
		{Printer{Form: CSV}, list, "pipeline,rows\npublic.docs,1204\nevil�[31m <name>,3\n"},
		{Printer{Form: JSON}, list[:1], "{\n  \"rows\": [\n    {\n      \"name\": \"public.docs\",\n      \"rows\": 1204\n    }\n  ]\n}\n"},
		{
			Printer{Form: JSON, Compact: true},
			list[1:],
			"{\"rows\":[{\"name\":\"evil\\u001b[31m\\n<name>\",\"rows\":3}]}\n",
		},
		{Printer{Form: YAML}, list[:1], "rows:\n  - name: public.docs\n    rows: 1204\n"},
	} {
		var b strings.Builder
		test.printer.To = &b
		if err := List(&test.printer, "rows", test.list, []string{"pipeline", ">rows"}, func(r *row) []any {
			return []any{r.Name, r.Rows}
		}); err != nil || b.String() != test.want {
			t.Errorf("%s: %v\n%q\nwant\n%q", test.printer.Form, err, b.String(), test.want)
		}
	}
}

func TestTable_CSVIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	p := Printer{To: &b, Form: CSV}
	row := []string{`quote "x", comma`, "=1+1", "-5", "+1", "@here", "a space "}
	if err := p.Table(Row([]string{"a", "b", "c", "d", "e", "f"}, row[0], row[1], row[2], row[3], row[4], row[5])); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || !slices.Equal(records[1], row) {
		t.Errorf("%q: %v", b.String(), err)
	}
}

// TestShow_NothingTricksATerminal: in every format, rows and names are only data, and survive unchanged. They do not
// control a terminal.
func TestShow_NothingTricksATerminal(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b]0;b\a\u202ec\u009b\u007f\U000e0001é" // controls, an override, a tag
	for _, text := range []string{hostile, "two\nlines " + hostile, "'" + hostile, hostile + ": "} {
		value := map[string]any{"list": []string{text}, text: text}
		for form, read := range map[Form]func([]byte, any) error{
			JSON: json.Unmarshal, YAML: func(b []byte, v any) error { return yaml.Unmarshal(b, v) },
		} {
			var b strings.Builder
			p := Printer{To: &b, Form: form}
			if err := p.Show(value, nil); err != nil || strings.ContainsFunc(b.String(), wording.Tricks) {
				t.Errorf("%s: %v\n%q", form, err, b.String())
			}
			var got map[string]any
			if err := read([]byte(b.String()), &got); err != nil || got[text] != text {
				t.Errorf("%s: %q, %v; want %q", form, got, err, text)
			}
		}
	}
	if got := wording.Printable(hostile + "\t\n"); strings.ContainsFunc(got, wording.Tricks) || !strings.HasSuffix(got, "é\t\n") {
		t.Errorf("%q", got)
	}
}
