package sidecar_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP8_ATextIsPaidForOnce: two pipelines with one embedder, half of whose texts the other has as well, loaded and
// changed at the same time: the embedder gets each text once.
func TestP8_ATextIsPaidForOnce(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	const rows = 1500
	// Each text is in two rows: twice in a table, once in each, or in neighbours of one batch.
	db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i / 2 FROM generate_series(0, $1 - 1) AS i`, rows)
	r := newRig(t, db, column("docs", "body"), intoTable("notes", "body"))
	r.options = func(o *sidecar.Options) { o.BatchRows, o.Loops = 100, 4 }
	s, _ := r.start()
	var wg sync.WaitGroup
	for half := range 2 { // the same texts again for the other table, while they are on their way, and new ones for both
		wg.Go(func() {
			for i := half * rows / 2; i < (half+1)*rows/2; i += 50 {
				db.MustExec(`INSERT INTO notes SELECT i, 'text ' || i FROM generate_series($1::int, $1 + 49) AS i`, i)
				db.MustExec(`INSERT INTO docs SELECT $2 + i, 'text ' || i FROM generate_series($1::int, $1 + 49) AS i`, i, rows)
			}
		})
	}
	wg.Wait()
	r.settle()
	for text, times := range r.embedder.seen() {
		if times != 1 {
			t.Errorf("%q was sent %d times", text, times)
		}
	}
	if got := r.embedder.sent(); got != rows {
		t.Errorf("%d texts were sent, want the %d distinct ones", got, rows)
	}
	service := s.Service(pipeline.ModelName{Plugin: "counter", Model: "counter"})
	// A batch that lost against somebody's lock is done again, and saves its texts again.
	if got := service.Stats(); got.Missed.Load() != rows || got.Saved.Load() < 2*rows {
		t.Errorf("%d texts missed and %d saved, want %d and %d", got.Missed.Load(), got.Saved.Load(), rows, 2*rows)
	}
	r.verify()
}

// A sidecar that remembers nothing finds the vectors of texts where they are: in its pipeline's destination or in
// another's.
func TestP8_VectorsAreFoundWhereTheyAre(t *testing.T) {
	t.Parallel()
	for name, specs := range map[string][2]pipeline.Spec{
		"from a column": {column("docs", "body"), intoTable("notes", "body")},
		"from a table":  {intoTable("docs", "body"), column("notes", "body")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(notes)
			db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i FROM generate_series(1, 300) AS i`)
			r := newRig(t, db, specs[0], specs[1])
			r.options = func(o *sidecar.Options) { o.CacheBytes = 1 }
			r.start()
			r.settle()
			db.MustExec(`INSERT INTO notes SELECT i, 'text ' || i FROM generate_series(1, 300) AS i`) // the other's
			// its own
			db.MustExec(`INSERT INTO docs SELECT 1000 + i, 'text ' || (i % 300 + 1) FROM generate_series(1, 900) AS i`)
			r.settle()
			if got := r.embedder.sent(); got != 300 {
				t.Errorf("%d texts were sent, want 300", got)
			}
			r.verify()
		})
	}
}

// Pipelines of different embedders share nothing, though they have the same texts and say the same of their models.
func TestP8_EmbeddersShareNothing(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	r := newRig(t, db, column("docs", "body"), intoTable("notes", "body"))
	db.MustExec(`UPDATE embedsidecar.pipeline SET plugin = 'other' WHERE name = 'notes'`)
	other := newCounter()
	r.options = func(o *sidecar.Options) {
		o.Embedder = func(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
			if p.Plugin == "other" {
				return other, nil
			}
			return r.embedder, nil
		}
	}
	r.start()
	for i := range 20 {
		db.MustExec(`INSERT INTO docs VALUES ($1, $2)`, i, fmt.Sprint("text ", i))
		db.MustExec(`INSERT INTO notes VALUES ($1, $2)`, i, fmt.Sprint("text ", i))
	}
	r.settle()
	if a, b := r.embedder.sent(), other.sent(); a != 20 || b != 20 {
		t.Errorf("%d and %d texts, want 20 each", a, b)
	}
}

// TestP8_AChangedFilterPaysForNewRowsOnly: the generation decides whether a row is looked at, not whether its vector
// may be used again.
func TestP8_AChangedFilterPaysForNewRowsOnly(t *testing.T) {
	t.Parallel()
	const published, archived, drafts = 300, 10, 20
	chunked := func(table string, columns ...string) pipeline.Spec {
		spec := intoTable(table, columns...)
		spec.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16}
		return spec
	}
	for name, into := range map[string]func(string, ...string) pipeline.Spec{
		"column": column, "table": intoTable,
		"chunks": chunked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, body text, status text)`)
			db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i, CASE WHEN i <= $1::int THEN 'published'
				WHEN i <= $1::int + $2::int THEN 'archived' ELSE 'draft' END
				FROM generate_series(1, $1::int + $2::int + $3::int) AS i`, published, archived, drafts)
			spec := into("docs", "body")
			spec.Filter = `status = 'published'`
			r := newRig(t, db, spec)
			r.options = func(o *sidecar.Options) { o.CacheBytes = 1 } // what is used again is found in the tables
			_, stop := r.start()
			r.settle()
			stop()
			if n := r.embedder.sent(); n != published {
				t.Fatalf("%d texts were sent, want %d", n, published)
			}
			spec.Filter = `status IN ('published', 'archived')`
			r.init(spec)
			_, stop = r.start()
			r.settle()
			stop()
			if n := r.embedder.sent() - published; n != archived {
				t.Errorf("%d texts were sent for %d new rows", n, archived)
			}
			r.verify()
			sent := r.embedder.sent()
			spec.Columns, spec.Text = nil, `'' || body` // the same text in other words
			r.init(spec)
			r.start()
			r.settle()
			if n := r.embedder.sent() - sent; n != 0 {
				t.Errorf("%d texts were sent for other words of the same text", n)
			}
			r.verify()
		})
	}
}

// TestReembed_SendsEveryTextAgain: what is stored and remembered is not taken for rows that somebody wants embedded
// anew, be they whole or cut.
func TestReembed_SendsEveryTextAgain(t *testing.T) {
	t.Parallel()
	chunked := intoTable("notes", "body")
	chunked.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16}
	db := testenv.DB(t)
	specs := []pipeline.Spec{column("docs", "body"), chunked, intoTable("pages", "body")}
	for _, spec := range specs {
		db.MustExec(`CREATE TABLE ` + spec.Table + ` (id bigint PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO ` + spec.Table + ` SELECT i, CASE WHEN i < 20 THEN '` + spec.Table +
			` ' || i % 10 ELSE '' END FROM generate_series(1, 20) AS i`)
	}
	r := newRig(t, db, specs...)
	r.start()
	r.settle()
	r.verify()
	for i := range r.pipelines {
		p := &r.pipelines[i]
		sent := r.embedder.sent()
		for _, c := range []struct {
			keys        []string
			rows        int64
			least, most int
		}{{[]string{"3"}, 1, 1, 1}, {nil, 19, 10, 19}} { // of equal texts one that comes with another is sent once
			n := testenv.Value[int64](db, `SELECT changed FROM embedsidecar.reembed($1, $2)`, p.Name, c.keys)
			if n != c.rows {
				t.Fatalf("%s %v: %d rows", p.Name, c.keys, n)
			}
			if c.keys == nil && i == 2 { // somebody takes a vector away before it is looked at
				db.MustExec(`DELETE FROM pages_embedding WHERE id = 7`)
			}
			r.settle()
			now := r.embedder.sent()
			if now-sent < c.least || now-sent > c.most {
				t.Errorf("%s %v: %d texts were sent, want %d to %d", p.Name, c.keys, now-sent, c.least, c.most)
			}
			sent = now
		}
	}
	r.verify()
}

// TestP10_AReembedThatStopsAfterAPortionIsDoneThatFar: nobody has to come back for what a portion marked.
func TestP10_AReembedThatStopsAfterAPortionIsDoneThatFar(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i FROM generate_series(1, 20) AS i`)
	r := newRig(t, db, column("docs", "body"))
	r.start()
	r.settle()
	sent := r.embedder.sent()
	if n := testenv.Value[int64](db, `SELECT changed FROM embedsidecar.reembed('docs', max_rows => 5)`); n != 5 {
		t.Fatalf("%d rows in the first portion", n)
	}
	r.settle()
	if now := r.embedder.sent(); now != sent+5 {
		t.Errorf("%d texts were sent, %d before, want 5 more", now, sent)
	}
	r.verify()
}
