package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// holds looks at whether each row of docs has the vector of its text, of a width, under a name.
func (s *stage) holds(table, column string, dims int) {
	s.t.Helper()
	wrong := ""
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		wrong = ""
		type row struct{ Text, Vector string }
		join := "docs AS d"
		if table != "docs" {
			join += " LEFT JOIN " + table + " AS v USING (id)"
		}
		for _, r := range testenv.Rows[row](s.db, fmt.Sprintf(`SELECT concat_ws(E'\n\n', title, body) AS text,
			coalesce(%s::text, 'none') AS vector FROM %s`, column, join)) {
			if want := pipeline.VectorText(false, dims, vector.Of(r.Text, dims)); want != r.Vector {
				wrong = fmt.Sprintf("%q: %s, want %s", r.Text, r.Vector, want)
			}
		}
		return wrong == "", wrong
	})
}

// TestP3_TheModelIsChangedInPlace: change, switch, rollback, switch, drop-old, for both destinations; each name holds
// the vectors that it should at each moment, and rows that change meanwhile are followed in both generations.
func TestP3_TheModelIsChangedInPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ into, table, column, next, previous string }{
		{"table docs_embedding", "docs_embedding", "embedding", "docs_embedding__next", "docs_embedding__previous"},
		{"embedding", "docs", "embedding", "embedding__next", "embedding__previous"},
	} {
		t.Run(c.table, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 40)
			other := func(name string) (string, string) {
				if c.table == "docs" {
					return "docs", name
				}
				return name, "embedding"
			}
			docs := "docs: title, body -> " + c.into
			s.run(0, "init", "--pipeline", docs)
			s.start("--pipeline", docs)
			s.holds(c.table, c.column, 8)
			stdout, _ := s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
			s.has(stdout, "made")
			s.db.MustExec(`UPDATE docs SET title = 'new ' || id WHERE id % 3 = 0`)
			table, column := other(c.next)
			s.holds(table, column, 12)
			s.holds(c.table, c.column, 8)
			s.switches("switch", "switched")
			s.holds(c.table, c.column, 12)
			s.db.MustExec(`UPDATE docs SET body = 'newer ' || id WHERE id % 3 = 1`)
			s.db.MustExec(`DELETE FROM docs WHERE id > 30`)
			table, column = other(c.previous)
			s.holds(c.table, c.column, 12)
			s.holds(table, column, 8)
			s.switches("rollback", "rolled_back")
			s.holds(c.table, c.column, 8)
			s.db.MustExec(`INSERT INTO docs VALUES (100, 'a', 'b')`)
			s.holds(c.table, c.column, 8)
			table, column = other(c.next)
			s.holds(table, column, 12)
			s.switches("switch", "switched")
			stdout, _ = s.run(0, "model", "switch", "docs")
			s.has(stdout, "already_switched")
			s.holds(c.table, c.column, 12)
			stdout, _ = s.run(0, "model", "drop-old", "docs")
			s.has(stdout, "dropped_previous")
			stdout, _ = s.run(0, "model", "drop-old", "docs")
			s.has(stdout, "nothing_to_drop")
			s.run(exitFailed, "model", "rollback", "docs")
			s.db.MustExec(`UPDATE docs SET title = 'last ' || id`)
			s.holds(c.table, c.column, 12)
			s.run(0, "wait", "--caught-up")
			s.run(0, "verify", "--deep", "1000")
			if n := testenv.Value[int64](s.db, `SELECT count(*) FROM embedsidecar.pipeline`); n != 1 {
				t.Errorf("%d pipelines are left", n)
			}
		})
	}
}

// switches does what is refused until the other generation is complete.
func (s *stage) switches(verb, result string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		c := s.command("model", verb, "docs")
		out, err := c.CombinedOutput()
		if err == nil && !strings.Contains(string(out), result) {
			s.t.Fatalf("model %s: %s, want %s", verb, out, result)
		}
		return err == nil, string(out)
	})
}
