package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// holds checks that each row of docs has the vector of its text, with a dimension, under a name.
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

// TestP3_TheModelIsChangedInPlace: change, switch, rollback, switch, drop-old, for both kinds of destinations. Each
// name has the right vectors at each step, and both generations follow changing rows.
func TestP3_TheModelIsChangedInPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ into, table, column, next, previous, drop, gone string }{
		{
			"table docs_embedding", "docs_embedding", "embedding", "docs_embedding__next", "docs_embedding__previous",
			`DROP TABLE docs_embedding__next`, "docs_embedding__next",
		},
		{
			"embedding", "docs", "embedding", "embedding__next", "embedding__previous",
			`ALTER TABLE docs DROP COLUMN embedding__next`, "docs.embedding__next",
		},
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
			stdout, stderr := s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
			s.has(stdout, "made")
			s.has(stderr, "drop-old public.docs", "model status public.docs")
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
			// Status works for everyone even after the vectors of the other generation are dropped.
			s.run(0, "model", "change", "docs", "--to-plugin", "fake")
			s.db.MustExec(c.drop)
			stdout, _ = s.run(0, "model", "status")
			s.has(stdout, "public."+c.gone)
			stdout, _ = s.run(0, "model", "drop-old", "docs")
			s.has(stdout, "dropped_next")
			s.run(0, "model", "status", "docs")
		})
	}
}

// switches tries what is refused until the other generation is complete.
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

// TestP10_WhatASwitchMeets: dependent objects are recreated, or named with SQL that helps; grants and comments are
// copied; mistakes change nothing; and a configuration with the other model undoes nothing.
func TestP10_WhatASwitchMeets(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	const docs = "docs: title, body -> table docs_embedding"
	s.run(0, "init", "--pipeline", docs)
	reader := s.db.Role("")
	s.db.MustExec(`GRANT SELECT ON docs_embedding TO ` + reader)
	s.db.MustExec(`COMMENT ON COLUMN docs_embedding.embedded_at IS 'mine'`)
	s.db.MustExec(`CREATE VIEW docs_ids WITH (security_barrier) AS SELECT id, text_hash FROM docs_embedding`)
	s.db.MustExec(`CREATE FUNCTION docs_count() RETURNS bigint LANGUAGE sql
		BEGIN ATOMIC SELECT count(*) FROM docs_embedding; END`)
	s.start("--pipeline", docs)
	s.holds("docs_embedding", "embedding", 8)

	_, stderr := s.run(exitFailed, "model", "switch", "docs")
	s.has(stderr, "has no next generation", "model change public.docs --to MODEL")
	_, stderr = s.run(exitFailed, "model", "rollback", "docs")
	s.has(stderr, "no previous generation")
	_, stderr = s.run(exitUsage, "model", "change", "docs", "--to-plugin", "fake")
	s.has(stderr, "of this model already")
	_, stderr = s.run(exitUsage, "model", "change", "nothing", "--to-plugin", "fake-dims12")
	s.has(stderr, "nothing")
	_, stderr = s.run(exitUsage, "model", "change", "docs", "--to", "/tmp/folder")
	s.has(stderr, "is a path", "folder of models")
	stdout, _ := s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12", "--dry-run", "-o", "json")
	s.has(stdout, `"rows": 20`, `"dims": 12`, "view public.docs_ids: recreated by the switch",
		"function public.docs_count(): recreated by the switch")

	// By SQL: the sidecar carries it out.
	if got := testenv.Value[string](s.db, `SELECT embedsidecar.model_change('docs', '', 'fake-dims12')`); got != "requested" {
		t.Errorf("model_change: %s", got)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := testenv.Values[string](s.db, `SELECT concat_ws(' ', role, problem) FROM embedsidecar.generations ORDER BY 1`)
		return fmt.Sprint(said) == "[next serves]", fmt.Sprint(said)
	})
	stdout, _ = s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
	s.has(stdout, "already_under_way")
	s.holds("docs_embedding__next", "embedding", 12)
	for sql, want := range map[string]bool{
		`SELECT has_table_privilege('` + reader + `', 'docs_embedding__next', 'SELECT')`:                  true,
		`SELECT col_description('docs_embedding__next'::regclass, 5) = 'mine'`:                            true,
		`SELECT EXISTS (SELECT FROM embedsidecar.status WHERE pipeline LIKE '%next')`:                     false,
		`SELECT EXISTS (SELECT FROM embedsidecar.pipelines WHERE pipeline LIKE '%next')`:                  false,
		`SELECT EXISTS (SELECT FROM embedsidecar.audit WHERE action = 'model_change')`:                    true,
		`SELECT embedsidecar.current_model('docs') = 'fake' AND embedsidecar.check_model('docs', 'fake')`: true,
	} {
		if testenv.Value[bool](s.db, sql) != want {
			t.Errorf("%s is not %v", sql, want)
		}
	}
	stdout, _ = s.run(0, "model", "compare", "docs", "-o", "json")
	s.has(stdout, `"overlap_10"`, `"rank_correlation"`, `"role": "next"`)

	s.db.MustExec(`CREATE VIEW docs_vectors AS SELECT id, embedding FROM docs_embedding`)
	s.refuses("switch", "view public.docs_vectors", "DROP VIEW public.docs_vectors;")
	s.db.MustExec(`DROP VIEW docs_vectors`)
	s.db.MustExec(`ALTER TABLE docs_embedding ENABLE ROW LEVEL SECURITY`)
	s.refuses("switch", "row-level security", "ALTER TABLE public.docs_embedding__next ENABLE ROW LEVEL SECURITY;")
	s.db.MustExec(`ALTER TABLE docs_embedding DISABLE ROW LEVEL SECURITY`)
	stdout, _ = s.run(0, "model", "switch", "docs", "--dry-run")
	s.has(stdout, "would_be_switched")

	s.switches("switch", "switched")
	s.holds("docs_embedding", "embedding", 12)
	s.db.MustExec(`DELETE FROM docs WHERE id > 10`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := testenv.Values[int64](s.db, `SELECT docs_count() UNION ALL SELECT count(*) FROM docs_ids`)
		return fmt.Sprint(said) == "[10 10]", fmt.Sprint(said)
	})

	// The configuration still has the old model.
	_, stderr = s.run(0, "init", "--pipeline", docs)
	s.has(stderr, "was switched to model", "model rollback public.docs")
	s.switches("drop-old", "dropped_previous")
	_, stderr = s.run(0, "init", "--pipeline", docs)
	s.has(stderr, "name that in the configuration")
	if got := testenv.Value[string](s.db, `SELECT plugin FROM embedsidecar.pipelines`); got != "fake-dims12" {
		t.Errorf("init with the model of before: %s serves", got)
	}
	s.holds("docs_embedding", "embedding", 12)
}

// TestTrust_ANextGenerationIsReadByNobodyPastPolicies: until it has its policies, only the role that writes vectors can
// read it.
func TestTrust_ANextGenerationIsReadByNobodyPastPolicies(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	const docs = "docs: title, body -> table docs_embedding"
	s.run(0, "init", "--pipeline", docs)
	reader, writer := s.db.Role(""), s.db.Role("")
	s.db.MustExec(`GRANT SELECT ON docs_embedding TO ` + reader)
	s.db.MustExec(`GRANT SELECT, INSERT ON docs_embedding TO ` + writer)
	s.db.MustExec(`ALTER TABLE docs_embedding ENABLE ROW LEVEL SECURITY`)
	s.db.MustExec(`CREATE POLICY few ON docs_embedding USING (id < 3)`)
	s.start("--pipeline", docs)
	s.holds("docs_embedding", "embedding", 8)
	s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
	s.holds("docs_embedding__next", "embedding", 12)
	may := func(role, table string, want bool) {
		t.Helper()
		got := testenv.Value[bool](s.db, `SELECT has_table_privilege('`+role+`', '`+table+`', 'SELECT')`)
		if got != want {
			t.Errorf("role %s may read %s: %v", role, table, got)
		}
	}
	may(reader, "docs_embedding__next", false)
	may(writer, "docs_embedding__next", true)
	s.db.MustExec(`CREATE POLICY few ON docs_embedding__next USING (id < 3)`)
	s.db.MustExec(`ALTER TABLE docs_embedding__next ENABLE ROW LEVEL SECURITY`)
	s.switches("switch", "switched")
	may(reader, "docs_embedding", true)
}

// TestTrust_ASwitchParsesNothingOfAStranger: the server checks domain constraints while it parses array literals. So
// the owner of the schema does not recreate views and functions of other roles. The SQL offered instead quotes their
// names, and runs nothing contained in a name.
func TestTrust_ASwitchParsesNothingOfAStranger(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.run(0, "init", "--pipeline", "docs: title, body -> table docs_embedding")
	tenant := s.db.Role("")
	s.db.MustExecSuper(`GRANT ` + tenant + ` TO ` + testenv.Owner + `; GRANT SELECT ON docs_embedding TO ` + tenant + `;
		CREATE SCHEMA lair AUTHORIZATION ` + tenant + `; SET ROLE ` + tenant + `;
		CREATE TABLE lair.evidence (who text); GRANT INSERT ON lair.evidence TO public; GRANT USAGE ON SCHEMA lair TO public;
		CREATE FUNCTION lair.sees() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO lair.evidence VALUES (current_user); RETURN true; END $$;
		CREATE DOMAIN lair.word AS text CHECK (lair.sees());
		CREATE VIEW lair.counted AS SELECT id, '{x}'::lair.word[] AS words FROM docs_embedding;
		CREATE VIEW lair."a
DROP TABLE docs; --" AS SELECT id FROM docs_embedding; CREATE MATERIALIZED VIEW lair."b
DROP TABLE docs; --" AS SELECT id FROM docs_embedding;
		CREATE FUNCTION lair.counts() RETURNS bigint LANGUAGE sql
			BEGIN ATOMIC SELECT count(*) FROM docs_embedding WHERE '{x}'::lair.word[] IS NOT NULL; END; RESET ROLE;
		DELETE FROM lair.evidence`)
	s.start("--pipeline", "docs: title, body -> table docs_embedding")
	s.holds("docs_embedding", "embedding", 8)
	s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
	s.holds("docs_embedding__next", "embedding", 12)
	said := s.refuses("switch", "function lair.counts()", "view lair.counted", "DROP VIEW lair.counted;")
	_, said, _ = strings.Cut(said, "first:") // the SQL to paste
	if outside := outsideQuotes(said); !strings.Contains(said, "DROP TABLE") || strings.Contains(outside, "DROP TABLE") {
		t.Errorf("whoever pastes this runs what a name says:\n%s", said)
	}
	s.db.MustExecSuper(`DROP VIEW lair.counted; DROP FUNCTION lair.counts(); DROP VIEW lair."a
DROP TABLE docs; --"; DROP MATERIALIZED VIEW lair."b
DROP TABLE docs; --"`)
	s.switches("switch", "switched")
	if who := testenv.Values[string](s.db, `SELECT DISTINCT who FROM lair.evidence`); len(who) > 0 {
		t.Errorf("the constraint ran as %q", who)
	}
}

// refuses checks how a switch to a complete generation is refused.
func (s *stage) refuses(verb string, words ...string) (said string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		out, err := s.command("model", verb, "docs").CombinedOutput()
		if err == nil {
			s.t.Fatalf("model %s is not refused: %s", verb, out)
		}
		for _, word := range words {
			if !strings.Contains(string(out), word) {
				return false, string(out)
			}
		}
		said = string(out)
		return true, ""
	})
	return said
}

// holdsTitles is holds for pipelines of titles alone.
func (s *stage) holdsTitles(table string, dims int) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		if !testenv.Value[bool](s.db, fmt.Sprintf(`SELECT to_regclass('%s') IS NOT NULL`, table)) {
			return false, "no " + table
		}
		type row struct{ Title, Vector string }
		for _, r := range testenv.Rows[row](s.db, fmt.Sprintf(`SELECT title, coalesce(embedding::text, 'none') AS vector
			FROM docs LEFT JOIN %s USING (id)`, table)) {
			if want := pipeline.VectorText(false, dims, vector.Of(r.Title, dims)); want != r.Vector {
				return false, fmt.Sprintf("%q: %s, want %s", r.Title, r.Vector, want)
			}
		}
		return true, ""
	})
}

// TestP3_TheModelIsChangedByTheConfiguration: a new model in the file makes a next generation. plan shows it; apply,
// reload and the next run start it. It serves after a command, or automatically if the file says so. The old file
// undoes nothing.
func TestP3_TheModelIsChangedByTheConfiguration(t *testing.T) {
	t.Parallel()
	const next, auto = liveDocs + "\nplugin: fake-dims12", liveDocs + "\nplugin: fake-dims12\nswitch: auto"
	generations := func(s *stage, want string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got := testenv.Value[string](s.db,
				`SELECT string_agg(role || ' ' || plugin, ', ' ORDER BY role DESC) FROM embedsidecar.generations`)
			return got == want, got
		})
	}
	t.Run("reload", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 20)
		file, later := s.configured(liveDocs), s.configured(next)
		d := s.start("--config", file)
		s.holdsTitles("docs_embedding", 8)
		stdout, _ := s.run(0, "plan", "--config", later)
		s.has(stdout, `docs_embedding__next`, "20 texts")
		stdout, _ = s.run(0, "check", "--config", later)
		s.has(stdout, `configured with model "fake-dims12", whose`, `model "fake" stays live until`, "embedsidecar apply")
		s.rewrite(file, next)
		s.holdsTitles("docs_embedding__next", 12)
		s.holdsTitles("docs_embedding", 8)
		generations(s, "serves fake, next fake-dims12")
		stdout, _ = s.run(0, "check", "--config", file)
		s.has(stdout, "model switch docs")
		third := filepath.Join(t.TempDir(), "embedsidecar-fake-dims16")
		if dir, err := plugins(); err != nil || os.Link(filepath.Join(dir, "embedsidecar-fake"), third) != nil {
			t.Fatal(dir, err)
		}
		_, stderr := s.run(exitUsage, "apply", "--yes", "--config", s.configured(liveDocs+"\nplugin: "+third))
		s.has(stderr, `a change to model "fake-dims12" is under way`, "model switch docs")
		s.switches("switch", "switched")
		s.holdsTitles("docs_embedding", 12)
		s.rewrite(file, liveDocs)
		d.logged("configuration taken over", "msg")
		stdout, _ = s.run(0, "apply", "--yes", "--config", file)
		s.has(stdout, "was switched to model", "model rollback docs")
		generations(s, "serves fake-dims12, previous fake")
		d.end(syscall.SIGTERM, 0)
	})
	t.Run("apply", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 20)
		s.run(0, "run", "--once", "--config", s.configured(liveDocs))
		file := s.configured(auto)
		stdout, _ := s.run(0, "apply", "--config", file)
		s.has(stdout, "docs_embedding__next", "20 texts")
		generations(s, "serves fake")
		stdout, _ = s.run(0, "apply", "--yes", "--config", file)
		s.has(stdout, "docs_embedding__next")
		stdout, _ = s.run(0, "apply", "--yes", "--config", file)
		s.has(stdout, "nothing to change")
		generations(s, "serves fake, next fake-dims12")
		d := s.start("--config", file)
		generations(s, "serves fake-dims12, previous fake")
		s.holdsTitles("docs_embedding", 12)

		// A manual rollback is not overruled.
		s.run(0, "model", "rollback", "docs")
		s.run(0, "reload")
		s.db.MustExec("UPDATE docs SET title = 'new ' || id")
		s.holdsTitles("docs_embedding", 8)
		s.holdsTitles("docs_embedding__next", 12)
		generations(s, "serves fake, next fake-dims12")
		d.end(syscall.SIGTERM, 0)
	})
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, 20)
		s.run(0, "run", "--once", "--config", s.configured(liveDocs))
		d := s.start("--config", s.configured(auto))
		generations(s, "serves fake-dims12, previous fake")
		s.run(0, "model", "drop-old", "docs")
		s.db.MustExec("INSERT INTO docs VALUES (100, 'hundred', '')")
		s.holdsTitles("docs_embedding", 12)
		if n := strings.Count(d.text(), "next generation made"); n != 1 {
			t.Errorf("made %d times:\n%s", n, d.text())
		}
		d.end(syscall.SIGTERM, 0)
	})
}

// Two sidecars with different models in their files do not embed the rows repeatedly. The later model becomes the next
// generation and serves. It stays whichever sidecar restarts, also after the other generation is dropped.
func TestRun_FilesOfTwoModelsSettle(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	const auto = "\nswitch: auto"
	one, other := s.configured(liveDocs+auto), s.configured(liveDocs+auto+"\nplugin: fake-dims12")
	settled := func(want string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got := testenv.Value[string](s.db, `SELECT string_agg(role || ' ' || plugin, ', ' ORDER BY role DESC) FROM embedsidecar.generations`)
			return got == want, got
		})
		s.run(0, "wait", "--caught-up", "--timeout", waitTimeout.String())
		s.holdsTitles("docs_embedding", 12)
	}
	var ran []*daemon
	start := func(file string) *daemon {
		ran = append(ran, s.start("--config", file))
		return ran[len(ran)-1]
	}
	old := start(one)
	s.holdsTitles("docs_embedding", 8)
	young := start(other)
	settled("serves fake-dims12, previous fake")
	for i, want := range []string{"serves fake-dims12, previous fake", "serves fake-dims12"} {
		if i > 0 {
			s.run(0, "model", "drop-old", "docs", "--config", other)
		}
		old.end(syscall.SIGTERM, 0)
		old = start(one)
		old.logged("pipeline started", "pipeline")
		s.db.MustExec("UPDATE docs SET title = title || ' again'")
		settled(want)
		young.end(syscall.SIGKILL, -1)
		young = start(other)
		young.logged("pipeline started", "pipeline")
		settled(want)
	}
	old.end(syscall.SIGTERM, 0)
	young.end(syscall.SIGTERM, 0)
	made := 0
	for _, d := range ran {
		made += strings.Count(d.text(), "next generation made")
	}
	if made != 1 {
		t.Errorf("a next generation was made %d times, want once", made)
	}
}

// TestP3_WhereAndIgnoreAreOfBothGenerations: a change in the file applies to both generations, before and after a
// switch and a rollback.
func TestP3_WhereAndIgnoreAreOfBothGenerations(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	file := s.configured(liveDocs)
	d := s.start("--config", file)
	s.holdsTitles("docs_embedding", 8)
	s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12", "--config", file)
	s.holdsTitles("docs_embedding__next", 12)
	rows := func(want int, tables ...string) {
		t.Helper()
		for _, table := range tables {
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				n := testenv.Value[int](s.db, "SELECT count(*)::int FROM "+table)
				return n == want, fmt.Sprintf("%s has %d rows, want %d", table, n, want)
			})
		}
	}
	s.rewrite(file, liveDocs+"\nwhere: id > 10")
	rows(10, "docs_embedding", "docs_embedding__next")
	s.switches("switch", "switched")
	s.rewrite(file, liveDocs+"\nplugin: fake-dims12\nwhere: id > 15")
	rows(5, "docs_embedding", "docs_embedding__previous")
	s.switches("rollback", "rolled_back")
	s.rewrite(file, liveDocs)
	s.holdsTitles("docs_embedding", 8)
	s.holdsTitles("docs_embedding__next", 12)
	vectors := func() string {
		return testenv.Value[string](s.db, `SELECT concat(a.embedding, b.embedding) FROM docs_embedding AS a
			JOIN docs_embedding__next AS b USING (id) WHERE id = 3`)
	}
	before := vectors()
	s.rewrite(file, liveDocs+"\nignore: lower(text)")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Value[string](s.db, "SELECT string_agg(coalesce(ignore_expression, 'none'), ' ') FROM embedsidecar.pipeline")
		return got == "lower(text) lower(text)", got
	})
	s.run(0, "wait", "--caught-up", "--timeout", waitTimeout.String())
	s.db.MustExec("UPDATE docs SET title = upper(title) WHERE id = 3; UPDATE docs SET title = 'another' WHERE id = 4")
	s.run(0, "wait", "--caught-up", "--timeout", waitTimeout.String())
	if vectors() != before {
		t.Error("an edit that does not count made another vector")
	}
	s.run(0, "init", "--config", file) // has nothing to change any more
	d.end(syscall.SIGTERM, 0)
}
