package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// adopted is the output of adopt with -o json.
type adopted struct {
	Pipelines []struct {
		Rows, Adopted, Known, Stale, Left, Refused int64
		Missing                                    int64 `json:"without_vector"`
		Empty                                      int64 `json:"without_text"`
		Sample                                     *struct{ Texts, Agree int }
	}
}

// counted makes the embedder log its texts, and returns how many it got since.
func (s *stage) counted() func() int {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "calls")
	s.set("EMBEDSIDECAR_PLUGIN_CALLS=" + file)
	seen := 0
	return func() int {
		s.t.Helper()
		calls, err := vector.ReadCalls(file)
		if err != nil {
			s.t.Fatal(err)
		}
		n := 0
		for _, c := range calls {
			n += len(c.Hashes)
		}
		fresh := n - seen
		seen = n
		return fresh
	}
}

// file writes a configuration.
func (s *stage) file(text string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// made embeds docs into a column and removes everything but the vectors, as if another program had left them.
func (s *stage) made(args ...string) {
	s.t.Helper()
	s.once(0, args...)
	s.run(0, "uninstall", "--yes")
	s.db.MustExec("COMMENT ON COLUMN docs.embedding IS NULL")
}

// docsInto describes the pipeline docs with its destination.
func docsInto(destination ...string) []string {
	return append([]string{"--table", "docs", "--columns", "title,body"}, destination...)
}

// TestAdopt_VectorsInAColumnAreNotEmbeddedAgain: only a sample and the rows that differ are embedded, however many rows
// there are. 100,000 rows take less than a minute (EMBEDSIDECAR_BIG_ROWS).
func TestAdopt_VectorsInAColumnAreNotEmbeddedAgain(t *testing.T) {
	t.Parallel()
	rows := int64(testenv.FromEnvironment(t, "EMBEDSIDECAR_BIG_ROWS", 600))
	s := newStage(t, int(rows))
	s.made()
	s.db.MustExec(`ALTER TABLE docs ADD updated_at timestamptz NOT NULL DEFAULT now(), ADD embedded_at timestamptz;
		UPDATE docs SET embedded_at = now();
		UPDATE docs SET body = 'changed ' || id, updated_at = now() + interval '1 s' WHERE id <= 5;
		UPDATE docs SET embedding = NULL WHERE id BETWEEN 11 AND 13;
		UPDATE docs SET embedding = array_fill(0, ARRAY[8])::vector WHERE id = 12; -- zeros say nothing of a text
		UPDATE docs SET title = NULL, body = ' ' WHERE id = 20`)
	texts := s.counted()
	adopt := append([]string{"adopt", "docs", "--from", "embedding"}, docsInto("--into", "embedding")...)
	_, stderr := s.run(exitUsage, append(adopt, "--updated-at", "changed_at")...)
	s.has(stderr, "no column", "updated_at")
	stdout, _ := s.run(0, append(adopt, "--updated-at", "updated_at", "--dry-run", "-o", "json")...)
	if got := decoded[adopted](t, stdout).Pipelines[0]; got.Rows != rows || got.Stale != 5 {
		t.Errorf("a dry run says %+v", got)
	}
	if testenv.Value[int64](s.db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'embedsidecar'") != 0 {
		t.Error("a dry run made the schema")
	}
	texts()
	began := time.Now()
	stdout, _ = s.run(0, append(adopt, "--updated-at", "updated_at", "-o", "json")...)
	if took := time.Since(began); rows == 100_000 && took > time.Minute {
		t.Errorf("%d rows took %s", rows, took)
	} else {
		t.Logf("%d rows in %s", rows, took)
	}
	got := decoded[adopted](t, stdout).Pipelines[0]
	if got.Rows != rows || got.Adopted != rows-9 || got.Stale != 5 || got.Missing != 3 || got.Empty != 1 || got.Left != 8 {
		t.Errorf("adopted %+v", got)
	}
	if n := texts(); got.Sample == nil || got.Sample.Texts != 200 || got.Sample.Agree != 200 || n > 300 {
		t.Errorf("a sample of %+v, and %d texts embedded", got.Sample, n)
	}
	s.run(0, "run", "--once")
	if n := s.embedded(); n != 8 {
		t.Errorf("%d texts were embedded afterwards, want 8", n)
	}
	s.run(0, "verify", "--deep", "50")
	s.db.MustExec("UPDATE docs SET body = 'later' WHERE id = 300")
	s.run(0, "run", "--once")
	s.run(0, "verify", "--deep", "50")
	stdout, _ = s.run(0, append(adopt, "-o", "json")...) // nothing is left to adopt
	if got := decoded[adopted](t, stdout).Pipelines[0]; got.Adopted != 0 || got.Known != rows {
		t.Errorf("adopted again %+v", got)
	}
}

// TestP1_AnAdoptionThatIsKilledGoesOn: adopted vectors stay adopted, and only rows that changed after the set-up are
// embedded, whatever comparisons were requested since: a sidecar that takes the slot requests one.
func TestP1_AnAdoptionThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2500)
	s.made()
	adopt := append([]string{"adopt", "docs", "--from", "embedding", "-o", "json"}, docsInto("--into", "embedding")...)
	s.set(failpoint.Env + "=adopt/after-page=kill")
	s.run(-1, adopt...)
	s.set(failpoint.Env + "=")
	s.db.MustExec("UPDATE docs SET body = 'meanwhile ' || id WHERE id <= 10")
	s.run(exitFailed, "run", "--once") // it is paused
	stdout, _ := s.run(0, append(adopt, "--trust")...)
	got := decoded[adopted](t, stdout).Pipelines[0]
	if got.Known == 0 || got.Known+got.Adopted != 2490 || got.Stale != 10 {
		t.Errorf("adopted %+v", got)
	}
	s.run(0, "run", "--once")
	if n := s.embedded(); n != 10 {
		t.Errorf("%d texts were embedded afterwards, want 10", n)
	}
	s.run(0, "verify", "--deep", "2500")
}

// TestP1_ARowThatChangesWhileAnAdoptionProvesItsVectors: the stream begins after the sample was embedded, which takes
// time. A row that changes before that comes through no slot.
func TestP1_ARowThatChangesWhileAnAdoptionProvesItsVectors(t *testing.T) {
	t.Parallel()
	s := newStage(t, 600)
	s.made()
	calls := filepath.Join(t.TempDir(), "calls")
	s.set("EMBEDSIDECAR_PLUGIN_CALLS=" + calls)
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=cost=300ms/call")
	d := s.background(append([]string{"adopt", "docs", "--from", "embedding"}, docsInto("--into", "embedding")...)...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		made, err := vector.ReadCalls(calls)
		sampled := slices.ContainsFunc(made, func(c vector.Call) bool { return len(c.Hashes) == 32 })
		return sampled, fmt.Sprintf("%d calls, %v", len(made), err)
	})
	s.db.MustExec("UPDATE docs SET body = 'meanwhile ' || id WHERE id <= 10")
	d.ends(0)
	s.run(0, "run", "--once")
	if n := s.embedded(); n != 10 {
		t.Errorf("%d texts were embedded afterwards, want 10", n)
	}
	s.run(0, "verify", "--deep", "600")
}

// TestP8_ARestartDuringAnAdoptionResumesNothing: the file has enabled: true, and a sidecar starts with it before all
// vectors are adopted.
func TestP8_ARestartDuringAnAdoptionResumesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2500)
	s.made()
	file := s.configured("name: docs\ntable: public.docs\ncolumns: [title, body]\ninto: {column: embedding}\nenabled: true")
	adopt := []string{"adopt", "docs", "--from", "embedding", "--config", file, "--trust"}
	s.set(failpoint.Env + "=adopt/after-page=kill")
	s.run(-1, adopt...)
	s.set(failpoint.Env + "=")
	s.run(exitFailed, "run", "--once", "--config", file) // it is paused
	if n := s.embedded(); n != 0 {
		t.Errorf("%d texts were embedded during the adoption", n)
	}
	s.run(0, adopt...)
	s.run(0, "run", "--once", "--config", file)
	if n := s.embedded(); n != 0 {
		t.Errorf("%d texts were embedded afterwards", n)
	}
	s.run(0, "verify", "--deep", "100", "--config", file)
	s.set(failpoint.Env + "=adopt/before-resume=kill")
	s.run(-1, adopt...)
	s.set(failpoint.Env + "=")
	s.run(0, "resume", "docs")
	s.run(0, "run", "--once", "--config", file)
}

// TestP1_AJoinedRowThatChangesDuringAnAdoption: the text that is read with a vector may be newer than that. Then the
// changes of its joined rows are still in the stream, and the row is embedded.
func TestP1_AJoinedRowThatChangesDuringAnAdoption(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1500)
	s.db.MustExec(`CREATE TABLE tags (id bigint PRIMARY KEY, name text)`)
	s.db.MustExec(`INSERT INTO tags SELECT id, 'tag ' || id FROM docs`)
	s.db.MustExec(`CREATE TABLE kinds (id bigint PRIMARY KEY, name text); INSERT INTO kinds VALUES (1, 'some'), (2, 'most');
		ALTER TABLE docs ADD kind bigint; UPDATE docs SET kind = CASE WHEN id BETWEEN 21 AND 700 THEN 2 ELSE 1 END`)
	file := s.configured("name: docs\ntable: public.docs\ncolumns: [title, body]\ninto: {column: embedding}\n" +
		"joins: [{table: tags, on: {id: id}, text: name}, {table: kinds, on: {id: kind}, text: name}]")
	s.run(0, "run", "--once", "--config", file)
	s.run(0, "uninstall", "--yes")
	s.db.MustExec("COMMENT ON COLUMN docs.embedding IS NULL")
	adopt := []string{"adopt", "docs", "--from", "embedding", "-o", "json", "--config", file}
	s.set(failpoint.Env + "=adopt/after-page=kill")
	s.run(-1, adopt...)
	s.set(failpoint.Env + "=")
	s.db.MustExec(`UPDATE tags SET name = 'new ' || id WHERE id <= 10; DELETE FROM tags WHERE id BETWEEN 11 AND 20;
		UPDATE kinds SET name = 'many' WHERE id = 2`)
	s.run(0, append(adopt, "--trust")...)
	s.run(0, "run", "--once", "--config", file)
	if n := s.embedded(); n < 700 {
		t.Errorf("%d texts were embedded afterwards, want 700", n)
	}
	s.run(0, "verify", "--deep", "1500", "--config", file)
}

func TestAdopt_VectorsOfAnotherModelAreRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, 300)
	s.made()
	adopt := append([]string{"adopt", "docs", "--from", "embedding"}, docsInto("--into", "embedding")...)
	const other = `UPDATE docs SET embedding = (SELECT array_agg(sin(id * i)) FROM generate_series(1, 8) AS i)::vector`
	for _, c := range []struct{ sql, says string }{
		{"UPDATE docs SET body = 'changed' WHERE id % 20 = 0", "--updated-at"},
		{other + " WHERE id % 2 = 0", "of several models"},
		{other, "cosine"},
		{"UPDATE docs SET embedding = NULL", "no vector"},
		{"ALTER TABLE docs ALTER embedding TYPE vector(4) USING NULL", "4"},
	} {
		s.db.MustExec(c.sql)
		_, stderr := s.run(exitUsage, adopt...)
		s.has(stderr, c.says)
		if n := testenv.Value[int64](s.db, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+s.slot+"'"); n != 0 {
			t.Errorf("%s: a slot was made", c.sql)
		}
	}
	s.db.MustExec("ALTER TABLE docs ALTER embedding TYPE vector(8) USING NULL; " + other)
	s.run(0, append(adopt, "--trust")...) // skips the comparison
	s.run(0, "run", "--once")
	s.run(0, "verify")
	s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
	s.set("EMBEDSIDECAR_PLUGIN=fake-dims12") // now init would keep the current model
	_, stderr := s.run(exitUsage, append(adopt, "--trust")...)
	s.has(stderr, "set up with model fake", "model change public.docs")
}

func TestAdopt_VectorsInATableAreCopied(t *testing.T) {
	t.Parallel()
	s := newStage(t, 300)
	s.made()
	s.db.MustExec(`CREATE SCHEMA old; CREATE TABLE old.vectors (doc bigint PRIMARY KEY REFERENCES docs, embedding real[]);
		INSERT INTO old.vectors SELECT id, embedding::real[] FROM docs WHERE id > 10;
		UPDATE old.vectors SET embedding = array_fill(0, ARRAY[8]) WHERE doc = 11;
		ALTER TABLE docs DROP embedding`)
	flags := docsInto("--into-table", "docs_embedding")
	_, stderr := s.run(exitUsage, append([]string{"adopt", "docs", "--from", "old.vector"}, flags...)...)
	s.has(stderr, "old")
	intoColumn := docsInto("--into", "embedding")
	_, stderr = s.run(exitUsage, append([]string{"adopt", "docs", "--from", "old.vectors"}, intoColumn...)...)
	s.has(stderr, "into: {table: NAME}")
	s.run(0, append([]string{"adopt", "docs", "--from", "old.vectors"}, flags...)...)
	s.run(0, "run", "--once")
	if n := s.embedded(); n != 11 {
		t.Errorf("%d texts were embedded afterwards, want 11", n)
	}
	s.run(0, "verify", "--deep", "50")
}

func TestAdopt_ChunksAreFoundByTheirTexts(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	paragraph := strings.Repeat("some words of a paragraph ", 8)
	for i := range 40 {
		s.db.MustExec("INSERT INTO docs VALUES ($1, $2, $3)", i, fmt.Sprint("title ", i),
			fmt.Sprintf("%d %s\n\n%d more %s", i, paragraph, i, paragraph))
	}
	file := s.file(`version: 1
pipelines:
  - name: docs
    table: public.docs
    columns: [body]
    into: {table: docs_chunks}
    chunking: {strategy: sentences, tokens: 64}
`)
	s.run(0, "run", "--once", "--config", file)
	s.db.MustExec(`CREATE TABLE old (doc_id bigint REFERENCES docs, chunk_seq int, content text, v vector(8));
		INSERT INTO old SELECT id, chunk_no, chunk_text, embedding FROM docs_chunks`)
	s.run(0, "uninstall", "--yes")
	s.db.MustExec(`DROP TABLE docs_chunks; UPDATE docs SET body = body || E'\n\nand this ' || body WHERE id = 7`)
	s.run(0, "adopt", "docs", "--from", "old", "--config", file)
	s.db.MustExec("CREATE TABLE before AS SELECT max(embedded_at) AS at FROM docs_chunks")
	s.run(0, "run", "--once", "--config", file)
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM docs_chunks, before WHERE embedded_at > at"); n == 0 || n > 3 {
		t.Errorf("%d chunks were embedded afterwards, want those of one new paragraph", n)
	}
	s.run(0, "verify", "--deep", "20")
	if n := testenv.Value[int64](s.db, "SELECT count(*) FROM docs_chunks WHERE start_byte IS NULL"); n != 0 {
		t.Errorf("%d chunks have no place in their text", n)
	}
}
