package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
)

// Of several databases, one that fails has neither the others' columns nor a secret in its place.
func TestShowAll(t *testing.T) {
	t.Parallel()
	redact := strings.NewReplacer("secret", "***").Replace
	failed := errors.New("dial secret")
	for _, c := range []struct {
		form   output.Form
		bodies []string // the first database fails
		want   string
	}{
		{output.CSV, []string{"", "name,rows\na,1\n", "name,rows\nb,2\n"}, "database,name,rows\ndb1,a,1\ndb2,b,2\n"},
		{output.CSV, []string{"", ""}, ""},
		{
			output.YAML,
			[]string{"", "- a\n- b\n", "null\n", "name: a\n", "done\n"},
			"databases:\n  - database: db0\n    error: dial ***\n  - answer:\n      - a\n      - b\n    database: db1\n" +
				"  - database: db2\n  - database: db3\n    name: a\n  - answer: done\n    database: db4\n",
		},
	} {
		var to bytes.Buffer
		var answers []*answer
		for i, body := range c.bodies {
			a := &answer{database: "db" + string(rune('0'+i))}
			a.data.WriteString(body)
			answers = append(answers, a)
		}
		answers[0].err = failed
		if err := showAll(&output.Printer{To: &to, Form: c.form}, answers, redact); err != nil || to.String() != c.want {
			t.Errorf("%v:\n%s\nwant\n%s\n%v", c.form, to.String(), c.want, err)
		}
		if got := answers[0].text(redact); got != "! dial ***\n" {
			t.Errorf("for people: %q", got)
		}
	}
}
