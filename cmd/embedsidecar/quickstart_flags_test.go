package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestQuickstartFlags: the flags that quickstart's arguments stand for, with and without --columns.
func TestQuickstartFlags(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 30)
	for _, tt := range []struct {
		args        []string
		given, want string
	}{
		{[]string{"postgres://h/d"}, "", "database-url=postgres://h/d"},
		{[]string{"postgres://h/d", "docs"}, "", "database-url=postgres://h/d"},
		{[]string{"docs"}, "columns=a,b", "columns=a,b into-table=docs_embedding table=docs"},
		{[]string{"docs"}, "columns=a into=vector", "columns=a into=vector table=docs"},
		{nil, `columns=a table="S"."T t"`, `columns=a into-table="T t_embedding" table="S"."T t"`},
		{[]string{long}, "columns=a", "columns=a into-table=" + long[:52] + "_embedding table=" + long},
		{[]string{"a.b.c"}, "columns=a", "columns=a table=a.b.c"},
	} {
		given := map[string][]string{}
		for _, flag := range strings.SplitAfter(tt.given, " ") {
			if name, value, is := strings.Cut(flag, "="); is {
				given[name] = []string{strings.TrimSpace(value)}
			}
		}
		if strings.Contains(tt.given, `"S"`) {
			given["table"] = []string{`"S"."T t"`}
		}
		quickstartFlags(tt.args, given)
		got := ""
		for _, name := range []string{"columns", "database-url", "into", "into-table", "table"} {
			if given[name] != nil {
				got += fmt.Sprintf(" %s=%s", name, given[name][0])
			}
		}
		if strings.TrimSpace(got) != tt.want {
			t.Errorf("%v %s: got %s, want %s", tt.args, tt.given, got, tt.want)
		}
	}
}
