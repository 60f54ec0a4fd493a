package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSchemas_EachHasItsPipeline(t *testing.T) {
	t.Parallel()
	c, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, `
tenants: {schemas: 3}
pipelines:
  - {schemas: {match: "paying_*"}, table: docs, columns: [body], into: {table: e}, priority: high}
  - {schemas: {match: "*", except: [skip_*, public]}, table: docs, columns: [body], into: {table: e}, search: {filterable: [lang]}}
  - {schemas: {match: "paying_*"}, name: titles, table: docs, columns: [title], into: {table: t}}
  - {table: paying_own.docs, columns: [body, title], into: {table: e}}
`)}}})
	if err != nil {
		t.Fatal(err)
	}
	found := []Schema{
		{"paying_own", []string{"docs"}},
		{"embedsidecar", []string{"docs"}},
		{"pg_temp_3", []string{"docs"}},
		{"skip_this", []string{"docs"}},
		{"\xff", []string{"docs"}}, // in a SQL_ASCII database
		{"Free", []string{"docs"}},
		{"empty", nil},
		{"free_beyond", []string{"docs"}},
	}
	in, left := c.In(found)
	var got []string
	for i, p := range in.Pipelines {
		got = append(got, p.Name+" "+p.Schema+" "+strings.Join(p.Columns, ",")+" "+
			in.Origin(index("pipelines", i) + ".columns")[len(in.File()):])
	}
	want := []string{
		`"Free".docs Free body :5:77`, `paying_own.titles paying_own title :6:72`, `paying_own.docs paying_own body,title :7:39`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q,\nwant %q", got, want)
	}
	if !slices.Equal(left.Absent, []string{"empty.docs"}) || left.Beyond != 1 || len(left.Unmet) > 0 {
		t.Errorf("left out: %+v", left)
	}
	for _, c := range []*Config{c, in} {
		if s := c.SearchOf(`"Free".docs`); !slices.Equal(s.Filterable, []string{"lang"}) {
			t.Errorf("search: %+v", s)
		}
	}
	if same, still := in.In(append(found, Schema{Name: "pg_temp_4"})); same != in || !reflect.DeepEqual(still, left) {
		t.Error("of the same schemas it is made again")
	}
	again, left := in.In(nil)
	if len(again.Pipelines) != 1 || len(c.Pipelines) != 4 ||
		!slices.Equal(left.Unmet, []string{"paying_*", "*", "paying_*"}) {
		t.Errorf("without schemas: %+v, %+v", again.Pipelines, left)
	}
	if live, _ := c.Changes(in); !slices.Equal(live, []string{"pipelines"}) {
		t.Errorf("changes: %v", live)
	}
}

func TestSchemas_BadPatterns(t *testing.T) {
	t.Parallel()
	const rest = "columns: [a], into: {table: e}}]"
	for entry, want := range map[string]string{
		"{schemas: {match: ''}, table: d, ":                                "pattern of names",
		"{schemas: {match: 'a\"*'}, table: d, ":                            "without quotes",
		"{schemas: {match: 'pg_*'}, table: d, ":                            "of the system",
		"{schemas: {match: embedsidecar}, table: d, ":                      "of the system",
		"{schemas: {match: 't_*', except: '*'}, table: d, ":                "leaves no schema",
		"{schemas: {match: 't_*', except: ['x', 't_*']}, table: d, ":       "leaves no schema",
		"{schemas: {except: 't_*'}, table: d, ":                            "schemas.match: it is missing",
		"{schemas: {match: 't_*'}, table: public.d, ":                      "write table: d",
		"{schemas: 't_*', table: d, ":                                      "keys and values",
		"{schemas: {match: 't_*', name: x}, table: d, ":                    "unknown key",
		"{schemas: {match: [a, b]}, table: d, ":                            "a list",
		"{schemas: {match: '" + strings.Repeat("s", 64) + "'}, table: d, ": "pattern of names",
	} {
		_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, "pipelines: ["+entry+rest)}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to tell of %q", entry, err, want)
		}
	}
	_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t,
		"pipelines: [{schemas: {match: 't_*'}, table: d, columns: [a], into: {table: s.e}}]")}}})
	if err == nil || !strings.Contains(err.Error(), "write table: e") {
		t.Errorf("a destination for all: %v", err)
	}
}
