package sidecar_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Rerank implements embed.Reranker.
func (*counter) Rerank(_ context.Context, query string, texts []string) ([]float32, error) {
	scores := make([]float32, len(texts))
	for i, text := range texts {
		scores[i] = vector.Score(query, text)
	}
	return scores, nil
}

// ranked returns the keys of rows from to to whose texts are made by a function, in the order of their scores.
func ranked(query string, from, to int, text func(i int) string) (keys []string) {
	ids := make([]int, 0, to-from+1)
	for i := from; i <= to; i++ {
		ids = append(ids, i)
	}
	slices.SortFunc(ids, func(a, b int) int {
		return cmp.Compare(vector.Score(query, text(b)), vector.Score(query, text(a)))
	})
	for _, id := range ids {
		keys = append(keys, fmt.Sprint(id))
	}
	return keys
}

// TestSQL_RerankIsTheOrderOfTheScores: for each destination, with the pipeline's own text of the row, under the rights
// and the policies of whoever asks.
func TestSQL_RerankIsTheOrderOfTheScores(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		db.MustExec(`CREATE TABLE beside (id int PRIMARY KEY, title text, body text, loud bool, embedding vector(8))`)
		db.MustExec(`CREATE TABLE said (id int PRIMARY KEY, body text)`)
		db.MustExec(`CREATE TABLE pieces (id int PRIMARY KEY, body text)`)
		db.MustExec(`CREATE TABLE parts (id int PRIMARY KEY, body text)`)
		parts := chunked("parts", pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16})
		pieces := chunked("pieces", pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16})
		said := intoTable("said", "body")
		said.Columns, said.Text = nil, "upper(body) || (10 / (id - 999))::text -- by the row"
		r := newRig(t, db, intoTable("docs", "body"), column("beside", "title", "body", "loud"), pieces, said, parts)
		r.options = func(o *sidecar.Options) {
			o.Price = func(p *pipeline.Pipeline) pipeline.Price {
				return pipeline.Price{Million: map[string]float64{"counter": 1e6, "scores": 3e6}[p.Model]}
			}
			o.Reranker = func(name string) string { return map[bool]string{true: "scores"}[name != "pieces"] }
		}
		_, stop := r.start()
		for _, table := range []string{"docs", "said"} {
			db.MustExec(`DELETE FROM ` + table)
			db.MustExec(`INSERT INTO ` + table + ` (id, body) SELECT i, 'text ' || i FROM generate_series(101, 130) AS i`)
		}
		db.MustExec(`INSERT INTO beside SELECT i, 'title ' || i, 'body', i % 2 = 0 FROM generate_series(101, 130) AS i`)
		db.MustExec(`INSERT INTO pieces VALUES (1, 'a text'), (2, 'another text')`)
		db.MustExec(`INSERT INTO parts SELECT i, 'part ' || i || repeat(' of row ' || i, 30) || repeat(' tail ' || i * i, 9)
			FROM generate_series(1, 9) AS i`)
		r.settle()

		tables := []string{
			"docs", "docs_embedding", "beside", "said", "said_embedding", "pieces", "pieces_embedding",
			"parts", "parts_embedding",
		}
		s := newSearcher(t, db, major, tables...)
		find := func(name, query string, k, offset, rerank int) ([]string, error) {
			if major < 17 {
				if _, err := s.conn.Exec(t.Context(), `CALL embedsidecar.ask($1, $2, '1 min', rerank => $3)`, name, query,
					rerank); err != nil {
					return nil, err
				}
			}
			return s.query(`SELECT row_key FROM embedsidecar.search($1, $2, $3, '1 min', "offset" => $4, rerank => $5)`, name, query,
				k, offset, rerank)
		}
		for name, text := range map[string]func(i int) string{
			"docs":   func(i int) string { return fmt.Sprint("text ", i) },
			"beside": func(i int) string { return fmt.Sprintf("title %d\n\nbody\n\n%t", i, i%2 == 0) },
			"said":   func(i int) string { return fmt.Sprintf("TEXT %d%d", i, 10/(i-999)) },
		} {
			want := ranked("which one", 101, 130, text)
			if got, err := find(name, "which one", 30, 0, 30); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v, want %v", name, got, err, want)
			}
			if got, err := find(name, "which one", 5, 7, 30); err != nil || !slices.Equal(got, want[7:12]) {
				t.Errorf("%s, a page: %v, %v, want %v", name, got, err, want[7:12])
			}
		}
		s.rerankedChunks()
		// Without a reranker, and with numbers that make no sense.
		if _, err := find("pieces", "a text", 2, 0, 2); err == nil {
			t.Error("a pipeline without a reranker was reranked")
		}
		s.refused(`SELECT * FROM embedsidecar.search('docs', 'x', 10, rerank => 9)`, "22023", "from 10")
		s.refused(`SELECT * FROM embedsidecar.search('docs', 'x', 10, rerank => 1001)`, "22023", "to 1000")
		// What a role may not read is not sent for it.
		db.MustExecSuper(`ALTER ROLE ` + r.role + ` BYPASSRLS`) // the sidecar sees all rows
		db.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
		db.MustExec(`CREATE POLICY few ON docs TO ` + db.SearcherRole() + ` USING (id IN (105, 106, 107))`)
		want := ranked("mine", 105, 107, func(i int) string { return fmt.Sprint("text ", i) })
		if got, err := find("docs", "mine", 10, 0, 30); err != nil || !slices.Equal(got, want) {
			t.Errorf("with a policy: %v, %v, want %v", got, err, want)
		}
		s.ask("said", "x")
		db.MustExec(`REVOKE SELECT ON said FROM ` + db.SearcherRole())
		db.MustExec(`GRANT SELECT (id) ON said TO ` + db.SearcherRole())
		s.refused(`SELECT * FROM embedsidecar.search('said', 'x', 5, rerank => 5)`, "42501", "GRANT SELECT (body) ON public.said")
		if major >= 17 {
			got, err := s.query(`SELECT embedsidecar.rerank('docs', 'q', ARRAY['a', 'é', ''], '1 min') = ARRAY[$1, $2, $3]::real[]`,
				vector.Score("q", "a"), vector.Score("q", "é"), min(vector.Score("q", "a"), vector.Score("q", "é")))
			if err != nil || !slices.Equal(got, []string{"t"}) {
				t.Errorf("scores of given texts: %v, %v", got, err)
			}
			s.refused(`SELECT embedsidecar.rerank('docs', 'q', ARRAY['a', NULL])`, "22023", "without NULL")
			s.refused(`SELECT embedsidecar.rerank('docs', 'q', ARRAY[repeat('x', 4000001)])`, "54000", "too many")
		}
		stop()
		r.searchesCost()
	})
}

// rerankedChunks: of chunks that are stored, the nearest one of each row is scored, and returned.
func (s *searcher) rerankedChunks() {
	s.t.Helper()
	if s.major < 17 {
		if _, err := s.conn.Exec(s.t.Context(), `CALL embedsidecar.ask('parts', 'which part', '1 min', rerank => 9)`); err != nil {
			s.t.Fatal(err)
		}
	}
	chunk := map[string]string{}
	rows, err := s.query(`SELECT row_key, chunk_text FROM embedsidecar.search('parts', 'which part', 9, '1 min')`)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, row := range rows {
		key, text, _ := strings.Cut(row, " ")
		chunk[key] = text
	}
	nearest := slices.SortedFunc(maps.Keys(chunk), func(a, b string) int {
		return cmp.Compare(vector.Score("which part", chunk[b]), vector.Score("which part", chunk[a]))
	})
	got, err := s.query(`SELECT row_key FROM embedsidecar.search('parts', 'which part', 9, '1 min', rerank => 9)`)
	if err != nil || len(chunk) != 9 || !slices.Equal(got, nearest) {
		s.t.Errorf("of chunks: %v, %v, want %v", got, err, nearest)
	}
}

// searchesCost: questions are counted by the price of the model, scores by that of the reranker.
func (r *rig) searchesCost() {
	r.t.Helper()
	type cost struct {
		Tokens int64
		Price  float64
	}
	for name, reranked := range map[string]bool{"beside": true, "pieces": false} {
		got := testenv.Rows[cost](r.db, `SELECT c.tokens, c.price FROM embedsidecar.pipeline AS p, embedsidecar.search_costs(p.pipeline_id) AS c
			WHERE p.name = $1`, name)[0]
		if of := float64(got.Tokens); of == 0 && reranked || reranked != (got.Price > of) || got.Price > 3*of {
			r.t.Errorf("searches of %s cost %+v", name, got)
		}
	}
}
