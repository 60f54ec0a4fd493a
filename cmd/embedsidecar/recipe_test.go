package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// texts checks that each row of docs has the vector of a text, in a column of docs or in another table.
func (s *stage) texts(place, text string) {
	s.t.Helper()
	table, column, _ := strings.Cut(place, ".")
	from := "docs AS d"
	if table != "docs" {
		from += " LEFT JOIN " + table + " AS v USING (id)"
	}
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		if !testenv.Value[bool](s.db, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1)
			AND attname = $2)`, table, column) {
			return false, "no " + place
		}
		type row struct{ Text, Vector string }
		for _, r := range testenv.Rows[row](s.db, fmt.Sprintf(`SELECT %s AS text, coalesce(%s::text, 'none') AS vector
			FROM %s`, text, column, from)) {
			if want := pipeline.VectorText(false, 8, vector.Of(r.Text, 8)); want != r.Vector {
				return false, fmt.Sprintf("%s: %q: %s, want %s", place, r.Text, r.Vector, want)
			}
		}
		return true, ""
	})
}

// TestP3_AnotherTextIsMadeBesideTheOldOne: with beside, a new text in the file makes a next generation, for a table and
// for a column. Both are kept up to date, the old one serves until the switch, and the old file undoes nothing.
func TestP3_AnotherTextIsMadeBesideTheOldOne(t *testing.T) {
	t.Parallel()
	const old, text = "title", "'note: ' || body"
	for _, c := range []struct{ into, live, next, previous string }{
		{
			"table: docs_embedding", "docs_embedding.embedding", "docs_embedding__next.embedding",
			"docs_embedding__previous.embedding",
		},
		{"column: embedding", "docs.embedding", "docs.embedding__next", "docs.embedding__previous"},
	} {
		t.Run(c.into, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 40)
			docs := "name: docs\ntable: public.docs\ninto: {" + c.into + "}\n"
			before, after := docs+"columns: [title]", docs+"text: \""+text+"\"\nbeside: true"
			file := s.configured(before)
			d := s.start("--config", file)
			s.texts(c.live, old)
			later := s.configured(after)
			stdout, _ := s.run(0, "plan", "--config", later)
			s.has(stdout, "__next", "40 texts")
			stdout, _ = s.run(0, "check", "--config", later)
			s.has(
				stdout, "configured with another text, chunking or type, whose", "what is set up stays live until",
				"embedsidecar apply",
			)
			s.rewrite(file, after)
			s.texts(c.next, text)
			s.texts(c.live, old)
			s.db.MustExec("UPDATE docs SET title = 'new ' || id, body = 'newer ' || id WHERE id % 3 = 0")
			s.db.MustExec("DELETE FROM docs WHERE id = 40")
			s.texts(c.next, text)
			s.texts(c.live, old)
			stdout, _ = s.run(0, "model", "status", "docs", "-o", "json")
			s.has(stdout, `"differs": "text"`)
			stdout, _ = s.run(0, "check", "--config", file)
			s.has(stdout, "model switch docs")
			stdout, _ = s.run(0, "apply", "--yes", "--config", file)
			s.has(stdout, "nothing to change")
			_, stderr := s.run(exitUsage, "apply", "--yes", "--config",
				s.configured(docs+"columns: [title, body]\nbeside: true"))
			s.has(stderr, "a change to another text, chunking or type is under way", "model drop-old docs")
			s.switches("switch", "switched")
			s.texts(c.live, text)
			s.texts(c.previous, old)

			// The old file undoes nothing.
			stdout, _ = s.run(0, "apply", "--yes", "--config", s.configured(before))
			s.has(stdout, "was switched to what is set up", "model rollback docs")
			s.texts(c.live, text)
			s.switches("rollback", "rolled_back")
			s.db.MustExec("UPDATE docs SET title = 'last ' || id, body = 'later ' || id")
			s.texts(c.live, old)
			s.texts(c.next, text)
			s.switches("switch", "switched")
			s.run(0, "model", "drop-old", "docs")
			s.texts(c.live, text)
			s.run(0, "wait", "--caught-up")
			s.run(0, "verify", "--deep", "1000")
			stdout, _ = s.run(0, "apply", "--yes", "--config", file)
			s.has(stdout, "nothing to change")
			if n := testenv.Value[int64](s.db, `SELECT count(*) FROM embedsidecar.pipeline`); n != 1 {
				t.Errorf("%d pipelines are left", n)
			}
			d.end(syscall.SIGTERM, 0)
		})
	}
}

// longTexts gives each row a text of several chunks.
func (s *stage) longTexts() {
	s.db.MustExec(`UPDATE docs SET body = (SELECT string_agg('This is sentence ' || n || ' of ' || id || '.', ' ')
		FROM generate_series(1, 20) n)`)
}

// typedVectors waits until a table has so many vectors, of a type.
func (s *stage) typedVectors(table string, least, most int64, kind string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		if !testenv.Value[bool](s.db, `SELECT to_regclass($1) IS NOT NULL`, table) {
			return false, "no " + table
		}
		n := testenv.Value[int64](s.db, `SELECT count(*) FROM `+table)
		is := testenv.Values[string](s.db, `SELECT DISTINCT pg_typeof(embedding)::text FROM `+table)
		return n >= least && n <= most && fmt.Sprint(is) == "["+kind+"]", fmt.Sprint(table, n, is)
	})
}

// TestP3_ChunkingAndTypeAreMadeBeside: the same for chunking and vector type together with a model, by a command and
// automatically. Without beside nothing changes.
func TestP3_ChunkingAndTypeAreMadeBeside(t *testing.T) {
	t.Parallel()
	const docs = "name: docs\ntable: public.docs\ncolumns: [title, body]\n"
	const plain = docs + "into: {table: docs_embedding}"
	const cut = plain + "\nchunking: {strategy: sentences, tokens: 16}"
	const half = docs + "into: {table: docs_embedding, type: halfvec}"
	t.Run("chunking", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 10)
		s.longTexts()
		file := s.configured(plain)
		d := s.start("--config", file)
		s.typedVectors("docs_embedding", 10, 10, "vector")
		_, stderr := s.run(exitUsage, "model", "change", "docs", "--beside")
		s.has(stderr, "is not in the configuration", "--config FILE")
		_, stderr = s.run(exitUsage, "model", "change", "docs", "--beside", "--config", file)
		s.has(stderr, "made of this text in this way")
		stdout, _ := s.run(0, "model", "change", "docs", "--beside", "--config", s.configured(cut))
		s.has(stdout, "made")
		stdout, _ = s.run(0, "model", "change", "docs", "--beside", "--config", s.configured(cut))
		s.has(stdout, "already_under_way")
		s.typedVectors("docs_embedding__next", 30, 1000, "vector")
		s.typedVectors("docs_embedding", 10, 10, "vector")
		stdout, _ = s.run(0, "model", "status", "docs", "-o", "json")
		s.has(stdout, `"differs": "chunking"`)
		stdout, _ = s.run(0, "model", "compare", "docs", "-o", "json")
		s.has(stdout, `"overlap_10"`)
		s.switches("switch", "switched")
		s.typedVectors("docs_embedding", 30, 1000, "vector")
		// A view that uses chunk columns blocks a return to whole texts until these have the columns.
		s.db.MustExec("CREATE VIEW pieces AS SELECT id, chunk_text FROM docs_embedding")
		s.refuses("rollback", "column chunk_text", "ALTER TABLE public.docs_embedding__previous ADD COLUMN chunk_text text;")
		s.db.MustExec("DROP VIEW pieces")
		s.switches("rollback", "rolled_back")
		s.typedVectors("docs_embedding", 10, 10, "vector")
		s.switches("switch", "switched")
		s.run(0, "model", "drop-old", "docs")

		// With the columns present, views of them survive.
		s.db.MustExec("CREATE VIEW pieces AS SELECT id, chunk_text FROM docs_embedding")
		s.rewrite(file, plain+"\nbeside: true\nswitch: auto")
		s.typedVectors("docs_embedding", 10, 10, "vector")
		s.db.MustExec("UPDATE docs SET title = 'new ' || id")
		s.run(0, "wait", "--caught-up")
		s.run(0, "verify", "--deep", "1000")
		d.end(syscall.SIGTERM, 0)
	})
	t.Run("type", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 10)
		file := s.configured(plain)
		s.run(0, "run", "--once", "--config", file)
		_, stderr := s.run(exitUsage, "apply", "--yes", "--config", s.configured(half))
		s.has(stderr, "is of type vector, not halfvec as configured")
		half := half + "\nbeside: true"
		stdout, _ := s.run(0, "apply", "--yes", "--config", s.configured(half))
		s.has(stdout, "docs_embedding__next")
		d := s.start("--config", s.configured(half))
		s.typedVectors("docs_embedding__next", 10, 10, "halfvec")
		s.typedVectors("docs_embedding", 10, 10, "vector")
		stdout, _ = s.run(0, "model", "status", "docs", "-o", "json")
		s.has(stdout, `"differs": "type"`)
		s.switches("switch", "switched")
		s.typedVectors("docs_embedding", 10, 10, "halfvec")
		d.end(syscall.SIGTERM, 0)
		// A sidecar with the old type goes on with the serving generation.
		d = s.start("--config", s.configured(docs+"into: {table: docs_embedding, type: vector}"))
		s.db.MustExec("INSERT INTO docs VALUES (11, 'eleven', '')")
		s.typedVectors("docs_embedding", 11, 11, "halfvec")
		s.typedVectors("docs_embedding__previous", 11, 11, "vector")
		d.end(syscall.SIGTERM, 0)
	})
	t.Run("with a model", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 10)
		s.run(0, "run", "--once", "--config", s.configured(plain))
		d := s.start("--config", s.configured(half+"\nplugin: fake-dims12\nbeside: true\nswitch: auto"))
		s.typedVectors("docs_embedding", 10, 10, "halfvec")
		stdout, _ := s.run(0, "model", "status", "docs", "-o", "json")
		s.has(stdout, `"differs": "model, type"`, `"dims": 12`)
		d.end(syscall.SIGTERM, 0)
	})
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 10)
		s.longTexts()
		s.run(0, "run", "--once", "--config", s.configured(plain))
		s.run(0, "run", "--once", "--config", s.configured(cut))
		s.typedVectors("docs_embedding", 30, 1000, "vector")
		if n := testenv.Value[int64](s.db, `SELECT count(*) FROM embedsidecar.pipeline`); n != 1 {
			t.Errorf("%d pipelines", n)
		}
	})
}

// TestP3_AGenerationThatAnswersOtherwiseDoesNotServeByItself: with a minimum overlap, a next generation whose answers
// differ too much does not serve automatically, and status shows the overlap. With a minimum that it reaches, it
// serves.
func TestP3_AGenerationThatAnswersOtherwiseDoesNotServeByItself(t *testing.T) {
	t.Parallel()
	s := newStage(t, 60)
	const docs = "name: docs\ntable: public.docs\ncolumns: [title]\ninto: {table: docs_embedding}\nplugin: fake-dims12\n"
	s.run(0, "run", "--once", "--config", s.configured(liveDocs))
	file := s.configured(docs + "switch: {auto: {overlap: 0.99}}")
	d := s.start("--config", file)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		out, err := s.command("model", "status", "docs").CombinedOutput()
		return err == nil && strings.Contains(string(out), "not switched by itself: overlap at 10 is 0.") &&
			strings.Contains(string(out), "below 0.99"), string(out)
	})
	d.logged("the next generation does not serve yet", "msg")
	s.holdsTitles("docs_embedding", 8)
	_, stderr := s.run(exitUsage, "config", "validate", "--config", s.configured(docs+"switch: {auto: {overlap: 60}}"))
	s.has(stderr, "switch.auto.overlap", "up to 1")
	s.rewrite(file, docs+"switch: {auto: {overlap: 0.0001}}")
	s.holdsTitles("docs_embedding", 12)
	d.end(syscall.SIGTERM, 0)
}
