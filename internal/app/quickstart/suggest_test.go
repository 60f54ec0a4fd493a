package quickstart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// TestColumn_Sentences: what people wrote is text; names of things, numbers and categories are not.
func TestColumn_Sentences(t *testing.T) {
	t.Parallel()
	many := func(form string, n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf(form, i))
		}
		return list
	}
	for name, test := range map[string]struct {
		values []string
		want   bool
	}{
		"titles":             {[]string{"Reset a password", "Login", "Order 12"}, true},
		"one text":           {[]string{"two words"}, true},
		"no spaces in it":    {[]string{"注文をキャンセルする", "ที่อยู่จัดส่ง"}, true},
		"addresses":          {many("person%d@example.com", 60), false},
		"hashes":             {many("%032x", 60), false},
		"a category":         {many("in progress", 1)[:1], true}, // of one row nobody can tell
		"categories":         {strings.Split(strings.Repeat("in progress,on hold,", 100), ",")[:200], false},
		"mostly single ones": {[]string{"a", "b", "c d"}, false},
		"nothing":            {[]string{"", " "}, false},
		"different texts":    {many("text number %d", 200), true},
	} {
		var c column
		for _, v := range test.values {
			c.add(v, int64(len(v)))
		}
		if got := c.sentences(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestSpecOf names everything as the server will have it: quoted, and no longer than a name may be.
func TestSpecOf(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 31)
	for _, test := range []struct{ schema, name, column, into string }{
		{"public", "docs", "body", "docs_embedding"},
		{"Odd", `we"ird`, "Body, Text", `we"ird_embedding`},
		{"public", long, "body", strings.Repeat("ä", 26) + "_embedding"},
	} {
		spec, err := specOf(&table{Schema: test.schema, Name: test.name, Columns: []string{test.column}})
		if err != nil || spec.Schema != test.schema || spec.Table != test.name || spec.IntoTable != test.into ||
			len(spec.Columns) != 1 || spec.Columns[0] != test.column || !spec.Enabled {
			t.Errorf("%+v: %+v, %v", test, spec, err)
		}
	}
}

// TestNothing: the error names the tables that are nearest to being useful, what they lack, and what helps.
func TestNothing(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"no rows yet: b; a search would find nothing":                                      nothing([]string{"b"}, []string{"c"}),
		"no column with sentences in it that this role may read: 1, 2, 3, 4, 5 and 2 more": nothing(nil, strings.Split("1234567", "")),
		"this database has no table of its own that this role may read":                    nothing(nil, nil),
	} {
		if err.Error() != want || len(problem.Hints(err)) < 1 {
			t.Errorf("%q, ways out %q, want %q", err, problem.Hints(err), want)
		}
	}
}

// TestFaster: a user of an encoder model is told of a static model, if a working one exists.
func TestFaster(t *testing.T) {
	t.Parallel()
	found := []models.Info{
		{Name: "minilm"}, {Name: "broken", Static: true, Problem: "no sums"}, {Name: "small", Static: true},
	}
	if got := faster("onnx", found); !strings.Contains(got, "--model small, a static model") {
		t.Errorf("told %q", got)
	}
	for _, plugin := range []string{"static", "remote", "fake"} {
		if got := faster(plugin, found); got != "" {
			t.Errorf("%s: told %q", plugin, got)
		}
	}
	if got := faster("onnx", found[:2]); got != "" {
		t.Errorf("without one: told %q", got)
	}
}
