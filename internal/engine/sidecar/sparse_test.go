package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// sparseOf is what the sparse counter gives for a text: the fake embedder's vector, or so many numbers as a text
// "numbers 5" says.
func sparseOf(text string) []float32 {
	var n int
	if _, err := fmt.Sscanf(text, "numbers %d", &n); err != nil {
		return embed.Pairs(vector.Sparse(text, vector.SparseDims))
	}
	indices, values := make([]uint32, n), make([]float32, n)
	for i := range n {
		indices[i], values[i] = uint32(i), float32(i%7+1)/64
	}
	return embed.Pairs(indices, values)
}

// sparseRows fails the test unless the destination holds the vector of each row's text as pgvector prints it, and no
// other.
func (r *rig) sparseRows(spec pipeline.Spec) {
	r.t.Helper()
	sql := `SELECT id || ' ' || coalesce(body, '') || '=' || coalesce(embedding::text, '') FROM docs`
	if spec.IntoTable != "" {
		sql = `SELECT coalesce(d.id::text, 'orphan') || ' ' || coalesce(d.body, '') || '=' || coalesce(e.embedding::text, '') FROM docs d FULL JOIN docs_embedding e USING (id)`
	}
	for _, row := range testenv.Values[string](r.db, sql) {
		key, stored, _ := strings.Cut(row, "=")
		_, text, _ := strings.Cut(key, " ")
		want := ""
		if !vector.Empty(text) {
			want = string(pipeline.Sparse{Dims: vector.SparseDims, Pairs: sparseOf(text)}.AppendText(nil))
		}
		if stored != want {
			r.t.Errorf("%s: stored %.80s, want %.80s", key, stored, want)
		}
	}
}

// TestP1_SparseVectors takes a sparse model through the life of a table: rows that were there, new ones, edits, moves
// and deletes, a text that comes again, and searches.
func TestP1_SparseVectors(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		bothDestinations(t, func(t *testing.T, into func(string, ...string) pipeline.Spec) {
			t.Helper()
			db := testenv.DB(t, testenv.Major(major))
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
			db.MustExec(`INSERT INTO docs SELECT i, 'common word' || i || ' Word' || i % 7 FROM generate_series(1, 200) AS i`)
			db.MustExec(`INSERT INTO docs VALUES (201, ''), (202, NULL), (203, 'numbers 16000')`)
			embedder := newCounter()
			embedder.sparse = true
			spec := into("docs", "body") // no type: it follows the model
			r := newRigWith(t, db, embedder, spec)
			if p := r.pipelines[0]; p.Stored != pipeline.StoredSparse || p.Dims != vector.SparseDims {
				t.Fatalf("made of type %s(%d)", p.Stored, p.Dims)
			}
			r.start()
			r.settle()
			r.sparseRows(spec)

			sent := embedder.sent()
			// known texts
			db.MustExec(`INSERT INTO docs SELECT 1000 + i, 'common word' || i || ' Word' || i % 7 FROM generate_series(1, 50) AS i`)
			db.MustExec(`UPDATE docs SET id = id + 5000 WHERE id BETWEEN 10 AND 20`)
			r.settle()
			if again := embedder.sent() - sent; again != 0 {
				t.Errorf("%d texts were sent though their vectors were there", again)
			}
			db.MustExec(`UPDATE docs SET body = 'edited word' || id WHERE id BETWEEN 30 AND 60`)
			db.MustExec(`UPDATE docs SET body = NULL WHERE id = 61`)
			db.MustExec(`DELETE FROM docs WHERE id BETWEEN 62 AND 70`)
			r.settle()
			r.sparseRows(spec)
			r.verify()

			pool := connect(t, r.url, 2)
			p := &r.pipelines[0]
			hits, err := search.Find(t.Context(), pool, p, search.Request{Vector: sparseOf("word77"), Rows: 3})
			if err != nil || len(hits) != 3 || hits[0].Key != "77" || hits[0].Distance == nil || *hits[0].Distance >= 0 ||
				*hits[1].Distance != 0 {
				t.Errorf("found %+v, %v", hits, err)
			}
			hits, err = search.Find(t.Context(), pool, p, search.Request{
				Vector: sparseOf("edited word40"), Text: "word40",
				Hybrid: true, Rows: 2,
			})
			if err != nil || len(hits) != 2 || hits[0].Key != "40" || hits[0].Score == nil {
				t.Errorf("hybrid: found %+v, %v", hits, err)
			}
			// Row 1007 has the text of row 7.
			if hits, err = search.Similar(t.Context(), pool, p, "7", search.Request{Rows: 1}); err != nil || len(hits) != 1 ||
				hits[0].Key != "1007" {
				t.Errorf("similar: found %+v, %v", hits, err)
			}
			for name, v := range map[string][]float32{
				"dense":    make([]float32, vector.SparseDims),
				"too wide": {vector.SparseDims, 1}, "nothing": nil,
			} {
				if _, err := search.Find(t.Context(), pool, p, search.Request{Vector: v, Rows: 1}); err == nil {
					t.Errorf("%s: a vector that is none was searched for", name)
				}
			}
		})
	})
}

func TestP1_SparseChunks(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs SELECT i, (SELECT string_agg('word' || i || 'x' || w || CASE w % 9 WHEN 0 THEN '. ' ELSE ' ' END, '') FROM generate_series(1, 150) AS w) FROM generate_series(1, 20) AS i`)
	embedder := newCounter()
	embedder.sparse = true
	spec := intoTable("docs", "body")
	spec.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkSentences, Tokens: 40}
	r := newRigWith(t, db, embedder, spec)
	r.start()
	r.settle()
	sent := embedder.sent()
	db.MustExec(`UPDATE docs SET body = 'A new beginning. ' || body WHERE id = 3`)
	db.MustExec(`UPDATE docs SET id = 100 WHERE id = 4`)
	db.MustExec(`DELETE FROM docs WHERE id = 5`)
	r.settle()
	if again := embedder.sent() - sent; again > 5 {
		t.Errorf("%d chunks were sent again", again)
	}
	r.verify()
	hits, err := search.Find(t.Context(), connect(t, r.url, 2), &r.pipelines[0],
		search.Request{Vector: sparseOf("word7x149"), Rows: 1})
	if err != nil || len(hits) != 1 || hits[0].Key != "7" || hits[0].Chunk == nil || !strings.Contains(hits[0].Text,
		"word7x149") {
		t.Errorf("found %+v, %v", hits, err)
	}
}

// A vector with more numbers than an index takes is the fault of its row alone.
func TestP5_ASparseVectorThatNoIndexTakes(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	embedder := newCounter()
	embedder.sparse = true
	r := newRigWith(t, db, embedder, column("docs", "body"))
	db.MustExec(`CREATE INDEX ON docs USING hnsw (embedding sparsevec_ip_ops)`)
	r.options = func(o *sidecar.Options) { quick(o) }
	r.start()
	db.MustExec(`INSERT INTO docs SELECT i, 'word' || i FROM generate_series(1, 20) AS i`)
	db.MustExec(`INSERT INTO docs VALUES (21, 'numbers 1000'), (22, 'numbers 1001')`)
	r.settle()
	if got := r.count(`SELECT count(*) FROM docs WHERE embedding IS NOT NULL`); got != 21 {
		t.Errorf("%d rows have a vector, want all but one", got)
	}
	got := testenv.Value[string](db,
		`SELECT row_key || ' ' || error_code || ' ' || error_message FROM embedsidecar.task WHERE state = 'failed'`)
	if !strings.HasPrefix(got, "22 write_refused") ||
		!strings.Contains(got, "1001 numbers of its sparse vector are not zero, and an HNSW index takes 1000") {
		t.Errorf("failed: %s", got)
	}
}

// Somebody makes the column dense, or lets another model at it: nothing is written, and the reason is told.
func TestP5_SparseVectorsFindNoPlace(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	embedder := newCounter()
	embedder.sparse = true
	r := newRigWith(t, db, embedder, column("docs", "body"))
	log := &recorder{}
	r.options = func(o *sidecar.Options) { o.Log = log.logger() }
	db.MustExec(`ALTER TABLE docs DROP COLUMN embedding, ADD COLUMN embedding vector`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'word')`)
	r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(log.text(), "vectors are sparse, and the destination"), "the log says:\n" + log.text()
	})
	if got := r.count(`SELECT count(*) FROM docs WHERE embedding IS NOT NULL`); got != 0 {
		t.Errorf("%d rows have a vector", got)
	}
}
