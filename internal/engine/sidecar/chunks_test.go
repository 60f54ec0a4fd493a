package sidecar_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// chunked is a spec of an embedding table of chunks.
func chunked(table string, c pipeline.Chunking) pipeline.Spec {
	spec := intoTable(table, "body")
	spec.Chunking = c
	return spec
}

// paragraphs makes n different paragraphs of about sixty words.
func paragraphs(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, seed))
	words := strings.Fields("river stone copper lantern harbour engine garden winter silver paper window bridge forest table index page lock queue")
	list := make([]string, n)
	for i := range list {
		for range 5 {
			var sentence []string
			for range 8 + r.IntN(8) {
				sentence = append(sentence, words[r.IntN(len(words))])
			}
			list[i] += strings.ToUpper(sentence[0][:1]) + strings.Join(sentence, " ")[1:] + ". "
		}
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func document(parts []string) string { return strings.Join(parts, "\n\n") }

func TestP8_EditsOfChunksCostWhatChanged(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, title text, body text, hits int)`)
		r := newRig(t, db, chunked("docs", pipeline.Chunking{
			Strategy: pipeline.ChunkMarkdown, Tokens: 128, Overlap: 16,
			Context: "title",
		}))
		r.start()
		text := paragraphs(1, 40)
		db.MustExec(`INSERT INTO docs VALUES (1, 'A title', $1, 0), (2, 'Short', 'One chunk.', 0), (3, NULL, '', 0)`,
			document(text))
		r.settle()
		if n := r.count(`SELECT count(*) FROM docs_embedding WHERE id = 1`); n != 40 {
			t.Fatalf("the text has %d chunks, want 40", n)
		}
		// cost is how many texts a change costs.
		cost := func(sql string, args ...any) int {
			before := r.embedder.sent()
			db.MustExec(sql, args...)
			r.settle()
			n := r.embedder.sent() - before
			r.verify()
			return n
		}
		edited := slices.Clone(text)
		edited[12] = "An edit at the beginning. " + edited[12]
		if n := cost(`UPDATE docs SET body = $1 WHERE id = 1`, document(edited)); n < 1 || n > 2 {
			t.Errorf("editing one of 40 chunks cost %d texts, want 1 or 2", n)
		}
		moved := slices.Insert(slices.Delete(slices.Clone(edited), 30, 31), 3, edited[30])
		if n := cost(`UPDATE docs SET body = $1 WHERE id = 1`, document(moved)); n != 0 {
			t.Errorf("moving a paragraph cost %d texts, want 0", n)
		}
		twice := slices.Concat(moved[:5], moved[:5], moved[5:])
		if n := cost(`UPDATE docs SET body = $1 WHERE id = 1`, document(twice)); n != 0 {
			t.Errorf("repeating five paragraphs cost %d texts, want 0", n)
		}
		if n := cost(`UPDATE docs SET body = $1 WHERE id = 1`, document(moved[10:])); n != 0 {
			t.Errorf("taking ten paragraphs away cost %d texts, want 0", n)
		}
		if n := r.count(`SELECT count(*) FROM docs_embedding WHERE id = 1`); n != 30 {
			t.Errorf("%d chunks are left, want 30", n)
		}
		if n := cost(`UPDATE docs SET hits = hits + 1`); n != 0 {
			t.Errorf("a counter cost %d texts, want 0", n)
		}
		if n := cost(`INSERT INTO docs VALUES (4, 'A title', $1, 0)`, document(moved[20:])); n != 0 {
			t.Errorf("a row of known chunks cost %d texts, want 0", n)
		}
		if n := cost(`UPDATE docs SET id = 14 WHERE id = 4`); n != 0 {
			t.Errorf("a new key cost %d texts, want 0", n)
		}
		if n := cost(`UPDATE docs SET title = 'Another' WHERE id = 2`); n != 1 {
			t.Errorf("a new title of a row of one chunk cost %d texts, want 1", n)
		}
		cost(`DELETE FROM docs WHERE id = 14`)
		cost(`UPDATE docs SET body = ' ' WHERE id = 1`)
		if n := r.count(`SELECT count(*) FROM docs_embedding WHERE id <> 2`); n != 0 {
			t.Errorf("%d chunks are left of rows that are gone or empty", n)
		}
	})
}

func TestChunks_SayWhereTheyAre(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, title text, body text)`)
	r := newRig(t, db, chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkMarkdown, Tokens: 64, Context: "title"}))
	r.start()
	body := "# Häading\n\n" + document(paragraphs(2, 3)) + "\n\n## Under\n\n" + document(paragraphs(3, 2))
	db.MustExec(`INSERT INTO docs VALUES (1, E'The\ntitle', $1)`, body)
	r.settle()
	r.verify()
	type line struct {
		no, start, end int
		context, text  string
	}
	var lines []line
	rows, err := db.Pool.Query(t.Context(),
		`SELECT chunk_no, start_byte, end_byte, coalesce(context, ''), chunk_text FROM docs_embedding ORDER BY chunk_no`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var l line
		if err := rows.Scan(&l.no, &l.start, &l.end, &l.context, &l.text); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if len(lines) < 5 {
		t.Fatalf("%d chunks, want 5 or more", len(lines))
	}
	for i, l := range lines {
		if l.no != i || l.text != body[l.start:l.end] {
			t.Errorf("chunk %d: number %d, bytes %d to %d, which are %q, and the text %q", i, l.no, l.start, l.end,
				body[l.start:l.end], l.text)
		}
		if !strings.HasPrefix(l.context, "The title") {
			t.Errorf("chunk %d has the context %q, want the title", i, l.context)
		}
	}
	if last := lines[len(lines)-1]; last.context != "The title > Häading > Under" {
		t.Errorf("the last chunk has the context %q", last.context)
	}
	db.MustExec(`UPDATE docs SET title = 'Häading'`) // as the heading, which is not repeated
	r.settle()
	context := testenv.Value[string](db, `SELECT context FROM docs_embedding ORDER BY chunk_no DESC LIMIT 1`)
	if context != "Häading > Under" {
		t.Errorf("the last chunk has the context %q", context)
	}
}

func TestChunks_SettingsMayChange(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, title text, body text)`)
	text := paragraphs(4, 12)
	db.MustExec(`INSERT INTO docs SELECT n, 'Title ' || n, $1 FROM generate_series(1, 20) AS n`, document(text))
	r := newRig(t, db, intoTable("docs", "body"))
	db.MustExec("GRANT SELECT ON docs TO " + pgx.Identifier{r.role}.Sanitize()) // also what only a later context reads
	_, stop := r.start()
	r.settle()
	r.verify()
	stop()
	change := func(what string, c pipeline.Chunking, chunks int64, most int) {
		t.Helper()
		before := r.embedder.sent()
		r.init(chunked("docs", c))
		_, stop := r.start()
		r.settle()
		cost := r.embedder.sent() - before
		r.verify()
		stop()
		if n := r.count(`SELECT count(*) FROM docs_embedding`); n != chunks {
			t.Errorf("%s: %d chunks, want %d", what, n, chunks)
		}
		if cost > most {
			t.Errorf("%s: %d texts were embedded, want at most %d", what, cost, most)
		}
	}
	paragraph := pipeline.Chunking{Strategy: pipeline.ChunkMarkdown, Tokens: 128}
	change("chunks", paragraph, 20*12, 12)
	change("the same", paragraph, 20*12, 0)
	paragraph.Strategy = pipeline.ChunkSentences
	change("another strategy with the same chunks", paragraph, 20*12, 0)
	paragraph.NoText = true
	change("without their text", paragraph, 20*12, 0)
	if n := r.count(`SELECT count(chunk_text) FROM docs_embedding`); n != 0 {
		t.Errorf("%d chunks have a text, want 0", n)
	}
	paragraph.NoText = false
	change("with their text again", paragraph, 20*12, 0)
	if n := r.count(`SELECT count(chunk_text) FROM docs_embedding`); n != 20*12 {
		t.Errorf("%d chunks have a text, want all %d", n, 20*12)
	}
	paragraph.Context = "title"
	change("with a context", paragraph, 20*12, 20*12)
	change("whole again", pipeline.Chunking{}, 20, 1)
}

func TestChunks_RowsOfAnySize(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, body text)`)
	r := newRig(t, db, chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 128, Overlap: 8}))
	r.start()
	long := paragraphs(5, 2000) // about 800 kB
	db.MustExec(`INSERT INTO docs SELECT n, 'Row ' || n FROM generate_series(1, 30) AS n`)
	db.MustExec(`INSERT INTO docs VALUES (100, $1), (101, $2), (102, $3)`, document(long), strings.Repeat("x", 4<<20+1),
		strings.Repeat("x y ", 1<<20))
	r.settle()
	if n := r.count(`SELECT count(DISTINCT id) FROM docs_embedding`); n != 31 {
		t.Errorf("%d rows have chunks, want 31", n)
	}
	failed := testenv.Values[string](db, `SELECT row_key || ' ' || error_code FROM embedsidecar.task ORDER BY row_key`)
	if want := []string{"101 too_long", "102 too_many_chunks"}; !slices.Equal(failed, want) {
		t.Errorf("dead letters: %q, want %q", failed, want)
	}
	before := r.embedder.sent()
	long[1000] = "Edited. " + long[1000]
	db.MustExec(`UPDATE docs SET body = $1 WHERE id = 100`, document(long))
	db.MustExec(`DELETE FROM docs WHERE id > 100`)
	r.settle()
	if n := r.embedder.sent() - before; n < 1 || n > 12 {
		t.Errorf("an edit in a long text cost %d texts, want a few", n)
	}
	r.verify()
}

func TestChunks_SearchReturnsTheBestChunkOfEachRow(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	// a column as the embedding table has one
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, context text, body text)`)
	spec := chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkSentences, Tokens: 128, Context: "context"})
	spec.Text = "body"
	r := newRig(t, db, spec)
	r.start()
	text := paragraphs(8, 40)
	db.MustExec(`INSERT INTO docs SELECT n, 'A', $1 FROM generate_series(1, 10) AS n`, document(text))
	db.MustExec(`INSERT INTO docs SELECT n, 'B', 'Short ' || n FROM generate_series(11, 20) AS n`)
	r.settle()
	for _, hybrid := range []bool{false, true} {
		hits, err := search.Find(t.Context(), db.Pool, &r.pipelines[0],
			search.Request{Vector: vector.Of("A\n\n"+text[7], dims), Text: "Short", Hybrid: hybrid, Rows: 15})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, h := range hits {
			if seen[h.Key] {
				t.Errorf("row %s was found twice", h.Key)
			}
			seen[h.Key] = true
			if c := h.Chunk; c != nil && c.Context == "A" && (h.Text != document(text)[c.Start:c.End] ||
				c.Number == 7 != (h.Text == text[7])) {
				t.Errorf("row %s: chunk %+v with the text %q", h.Key, c, h.Text)
			}
		}
		if !hybrid && (len(hits) != 15 || hits[0].Chunk == nil || hits[0].Text != text[7] || *hits[9].Distance > 1e-6 ||
			*hits[10].Distance < 1e-6) {
			t.Errorf("%d hits, the first %+v", len(hits), hits[0])
		}
	}
}

// blind is an embedder without a tokenizer.
type blind struct{ embed.Embedder }

func TestChunks_WithoutTheModelsTokens(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, body text)`)
	words := chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 64})
	words.Name, words.IntoTable = "words", "docs_words"
	r := newRig(t, db, chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkSentences, Tokens: 64}), words)
	r.options = func(o *sidecar.Options) {
		o.Embedder = func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) { return blind{r.embedder}, nil }
	}
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, $1)`, document(paragraphs(9, 4)))
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := testenv.Values[string](db,
			`SELECT p.name || ' ' || t.state || ' ' || coalesce(t.error_class, '') || ' ' || coalesce(t.error_code, '')
			FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)`)
		n := r.count(`SELECT count(*) FROM docs_embedding`)
		return n > 4 && len(said) == 1 && strings.HasPrefix(said[0], "words retrying configuration no_tokens"),
			fmt.Sprint(n, " chunks; ", said)
	})
}
