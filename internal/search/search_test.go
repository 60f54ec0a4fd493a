package search_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

const dims = 64

// rig is a database with pipelines over one table. The test writes their vectors itself.
type rig struct {
	t         *testing.T
	db        *testenv.Database
	pool      *pgxpool.Pool
	pipelines map[string]*pipeline.Pipeline
}

const table = `CREATE EXTENSION IF NOT EXISTS citext;
	CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN code AS text CHECK (VALUE <> '');
	CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, "Status; --" text, tenant int, author citext, mood mood, code code, at timestamptz, tags jsonb,
		place point, deleted_at timestamptz)`

// newRig sets up a pipeline for each destination, with rows whose title is "row N".
func newRig(t *testing.T, major, rows int) *rig {
	t.Helper()
	db := testenv.DB(t, testenv.Major(major), testenv.Empty())
	for statement := range strings.SplitSeq(table, ";\n") {
		db.MustExec(statement)
	}
	db.MustExec(`INSERT INTO docs SELECT i, 'row ' || i, NULL, CASE i % 2 WHEN 0 THEN 'even' ELSE 'odd' END, i % 5,
		'Author' || i % 3,
		CASE i % 2 WHEN 0 THEN 'good' ELSE 'bad' END::mood, 'c' || i,
		'2026-01-01 00:00Z'::timestamptz + i * interval '1 day', '{}', '(1,2)', CASE WHEN i % 3 = 0 THEN now() END
		FROM generate_series(1, $1::int) AS i`, rows)
	log := slog.New(slog.DiscardHandler)
	// Pauses of the machine and other tests' transactions are not the subject of these tests.
	timeout := 10 * time.Minute
	url, options := db.URL(testenv.Owner)+"&connect_timeout=120", database.Options{
		MaxConns: 4, IdleInTransaction: -1,
		Log: log,
	}
	pool, err := database.Connect(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	specs := []pipeline.Spec{{Name: "table", IntoTable: "docs_embedding"}, {Name: "column", IntoColumn: "embedding"}}
	for _, stored := range []pipeline.Stored{pipeline.StoredHalfvec, pipeline.StoredBit} {
		specs = append(specs, pipeline.Spec{Name: string(stored), IntoColumn: "as_" + string(stored), IntoType: stored},
			pipeline.Spec{Name: "table of " + string(stored), IntoTable: "docs_" + string(stored), IntoType: stored})
	}
	described := map[string]embed.Description{}
	for i := range specs {
		s := &specs[i]
		s.Schema, s.Table, s.Columns, s.Enabled, s.Plugin = "public", "docs", []string{"title", "body"}, true, "fake"
		described[s.Name] = embed.Description{Plugin: "fake", Model: "fake", Fingerprint: "fake-1", Dims: dims}
	}
	done, err := setup.Init(t.Context(), setup.Options{
		Pool: pool, ReplicationDSN: url, Slot: db.SlotName(), Publication: db.Name + "_pub", Specs: specs,
		Descriptions: described, Log: log,
		SlotTimeout: timeout, LockTimeout: timeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, db: db, pipelines: map[string]*pipeline.Pipeline{}}
	// A vacuum that truncates the table locks it briefly, and a search then fails with "retry later".
	for _, table := range []string{"docs", "docs_embedding", "docs_halfvec", "docs_bit"} {
		db.MustExec("ALTER TABLE " + table + " SET (vacuum_truncate = off)")
	}
	if r.pool, err = database.Connect(t.Context(), url, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.pool.Close)
	for i := range done.Pipelines {
		p := &done.Pipelines[i]
		r.pipelines[p.Name] = p
		for id := 1; id <= rows; id++ {
			r.put(p, id, 0, vector.Of(fmt.Sprint("row ", id), dims))
		}
	}
	return r
}

// put stores a vector like the worker does.
func (r *rig) put(p *pipeline.Pipeline, id, chunk int, v []float32) {
	r.t.Helper()
	sql := "UPDATE docs SET " + p.IntoColumn + " = " + p.ToStored("$2::"+p.VectorType()) + " WHERE id = $1 AND $3::int = 0"
	if !p.InSource() {
		sql = "INSERT INTO " + p.Into() +
			fmt.Sprintf(" (id, chunk_no, generation, text_hash, embedded_at, embedding) VALUES ($1, $3, %d, '', now(), %s)",
				p.Generation, p.ToStored("$2::"+p.VectorType()))
	}
	sql = strings.Replace(sql, "UPDATE docs", "UPDATE public.docs", 1)
	if _, err := r.pool.Exec(r.t.Context(), sql, id, pgvector.NewVector(v), chunk); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) find(p *pipeline.Pipeline, request search.Request) []search.Hit {
	r.t.Helper()
	hits, err := search.Find(r.t.Context(), r.pool, p, request)
	if err != nil {
		r.t.Fatalf("%s: %v", p.Name, err)
	}
	return hits
}

func keys(hits []search.Hit) []string {
	list := make([]string, len(hits))
	for i := range hits {
		list[i] = hits[i].Key
	}
	return list
}

// distance computes independently what the server should return.
func distance(stored pipeline.Stored, a, b []float32) (d float64) {
	a, b = stored.Canonical(a), stored.Canonical(b)
	var dot, aa, bb float64
	for i := range a {
		if stored == pipeline.StoredBit && a[i] != b[i] {
			d++
		}
		dot, aa, bb = dot+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	if stored == pipeline.StoredBit {
		return d
	}
	return 1 - dot/math.Sqrt(aa*bb)
}

func TestFind_TheNearestOfEachDestination(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		const rows = 60
		r := newRig(t, major, rows)
		question := vector.Of("question", dims)
		for name, p := range r.pipelines {
			hits := r.find(p, search.Request{Vector: question, Rows: 7})
			var all []float64
			for id := 1; id <= rows; id++ {
				all = append(all, distance(p.Stored, question, vector.Of(fmt.Sprint("row ", id), dims)))
			}
			slices.Sort(all)
			if len(hits) != 7 {
				t.Fatalf("%s: %d rows, want 7", name, len(hits))
			}
			for i, h := range hits {
				own := distance(p.Stored, question, vector.Of("row "+h.Key, dims))
				if math.Abs(*h.Distance-all[i]) > 1e-5 || math.Abs(*h.Distance-own) > 1e-5 || h.Text != "row "+h.Key ||
					string(h.Columns) != `{"id": `+h.Key+`}` || h.Score != nil {
					t.Errorf("%s: place %d is %+v at %v, want %v", name, i, h, *h.Distance, all[i])
				}
			}

			similar, err := search.Similar(t.Context(), r.pool, p, "9", search.Request{Rows: 3})
			if err != nil || len(similar) != 3 || slices.Contains(keys(similar), "9") {
				t.Errorf("%s: similar to row 9: %v, %v", name, keys(similar), err)
			}
			if _, err := search.Similar(t.Context(), r.pool, p, "9999", search.Request{Rows: 3}); !errors.Is(err,
				search.ErrNoRow) {
				t.Errorf("%s: similar to a row that is not there: %v", name, err)
			}
			var wrong *search.BadRequestError
			if _, err := search.Similar(t.Context(), r.pool, p, "1 OR true", search.Request{Rows: 3}); !errors.As(err, &wrong) {
				t.Errorf("%s: similar to what is no key: %v", name, err)
			}
		}
	})
}

func TestFind_OnlyWhatIsTrueNow(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 20)
	p := r.pipelines["table"]
	question := vector.Of("question", dims)
	r.db.MustExec("DELETE FROM docs WHERE id = 1")
	// The text was reconfigured: until row 2 is processed, its earlier vector of the same model is found.
	r.db.MustExec("UPDATE docs_embedding SET generation = generation - 1 WHERE id = 2")
	if got := keys(r.find(p, search.Request{Vector: question, Rows: 30})); len(got) != 19 || slices.Contains(got, "1") ||
		!slices.Contains(got, "2") {
		t.Errorf("found %v: 1 has no row any more, 2 has a vector", got)
	}
	// A vector of zeros, which somebody brought along, has no direction.
	r.db.MustExec("UPDATE docs_embedding SET embedding = array_fill(0, ARRAY[64])::vector WHERE id = 5")
	hits := r.find(p, search.Request{Vector: question, Rows: 30})
	if _, err := json.Marshal(hits); err != nil || len(hits) != 18 || slices.Contains(keys(hits), "5") {
		t.Errorf("found %v, %v: 5 is near to nothing", keys(hits), err)
	}
	if similar, err := search.Similar(t.Context(), r.pool, p, "5", search.Request{Rows: 3}); err != nil || len(similar) > 0 {
		t.Errorf("similar to zeros: %v, %v", keys(similar), err)
	}
	var near int
	if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM embedsidecar.neighbours('table', $1, 30)",
		pgvector.NewVector(question).String()).Scan(&near); err != nil || near != 18 {
		t.Errorf("SQL found %d rows, %v", near, err)
	}
	// The filter excludes the row, but its vector still exists: the sidecar is paused or busy.
	filtered := *p
	filtered.Filter = "id <> 4"
	if got := keys(r.find(&filtered, search.Request{Vector: question, Rows: 30})); len(got) != 17 ||
		slices.Contains(got, "4") {
		t.Errorf("found %v: 4 is excluded", got)
	}
	// Row 3 has many chunks, all nearer than any other row. It is returned once.
	for chunk := range 30 {
		r.put(p, 3, chunk+1, question)
	}
	if got := keys(r.find(p, search.Request{Vector: question, Rows: 5})); len(got) != 5 || got[0] != "3" ||
		slices.Index(got[1:], "3") >= 0 {
		t.Errorf("found %v, want row 3 once and four others", got)
	}
}

func TestFind_Filters(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 30)
	question := vector.Of("question", dims)
	for _, name := range []string{"table", "column", "bit"} {
		p := r.pipelines[name]
		for filter, where := range map[string]string{
			`{"Status; --": "even"}`:                      `"Status; --" = 'even'`,
			`{"Status; --": "x' OR true --"}`:             `false`,
			`{"tenant": [1, "2"], "Status; --": "odd"}`:   `tenant IN (1, 2) AND "Status; --" = 'odd'`,
			`{"author": "AUTHOR1"}`:                       `author = 'author1'`,
			`{"mood": "good"}`:                            `mood = 'good'`,
			`{"code": "c7"}`:                              `code = 'c7'`,
			`{"at": "2026-01-05T00:00:00Z"}`:              `id = 4`,
			`{"deleted_at": null}`:                        `deleted_at IS NULL`,
			`{"tenant": 3, "deleted_at": null, "id": 13}`: `id = 13`,

			`{"tenant": {"$gte": 1, "$lt": 3}}`:                            `tenant >= 1 AND tenant < 3`,
			`{"tenant": {"$in": [1, 4]}}`:                                  `tenant IN (1, 4)`,
			`{"tenant": {"$nin": [1, 4]}, "id": {"$lte": 9}}`:              `tenant NOT IN (1, 4) AND id <= 9`,
			`{"deleted_at": {"$ne": null}, "Status; --": {"$eq": "odd"}}`:  `deleted_at IS NOT NULL AND id % 2 = 1`,
			`{"at": {"$gt": "2026-01-05", "$lte": "2026-01-09T00:00Z"}}`:   `id BETWEEN 5 AND 8`,
			`{"author": {"$gt": "AUTHOR1"}}`:                               `author > 'author1'`,
			`{"mood": {"$lt": "bad"}}`:                                     `mood < 'bad'`,
			`{"code": {"$ne": "c7' OR true --"}}`:                          `true`,
			`{"deleted_at": {"$ne": "2026-01-05"}}`:                        `deleted_at <> '2026-01-05'`,
			`{"tenant": {"$nin": [1, null]}, "id": {"$gt": 5, "$ne": 17}}`: `tenant <> 1 AND id > 5 AND id <> 17`,
		} {
			var f search.Filters
			if err := json.Unmarshal([]byte(filter), &f); err != nil {
				t.Fatal(err)
			}
			got := keys(r.find(p, search.Request{Vector: question, Rows: 100, Filter: f}))
			want := testenv.Values[string](r.db, "SELECT id::text FROM docs WHERE "+where)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s: %v, want %v", name, filter, got, want)
			}
		}
		for _, filter := range []string{
			`{"no such": 1}`, `{"tenant": "x"}`, `{"tenant": []}`, `{"place": "(1,2)"}`, `{"ctid": "(0,1)"}`, `{"tableoid": 1}`,
			`{"id; DROP TABLE docs": 1}`,
			`{"tenant": [1, null]}`, `{"mood": "ugly"}`, `{"tenant": 99999999999999}`,
			`{"tenant": {"$gt": "1 OR true"}}`, `{"tenant": {"$in": []}}`, `{"place": {"$gt": "(1,2)"}}`,
			`{"tenant": {"$in": [1, null]}}`, `{"tags": {"$ne": "no JSON"}}`,
		} {
			var f search.Filters
			if err := json.Unmarshal([]byte(filter), &f); err != nil {
				t.Fatal(err)
			}
			var wrong *search.BadRequestError
			if hits, err := search.Find(t.Context(), r.pool, p, search.Request{
				Vector: question, Rows: 5,
				Filter: f,
			}); !errors.As(err, &wrong) {
				t.Errorf("%s: %s: %v, %v, want a bad request", name, filter, keys(hits), err)
			}
		}
	}
}

// TestFilter_WhatIsNone: unknown operators and invalid values.
func TestFilter_WhatIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a": {}}`, `{"a": {"$or": [1]}}`, `{"a": {"gt": 1}}`, `{"a": {"$gt": null}}`, `{"a": {"$gt": [1]}}`,
		`{"a": {"$in": 1}}`, `{"a": {"$in": [[1]]}}`, `{"a": {"$eq": {"$gt": 1}}}`, `{"a": {"$gt": 1, "$gt": 2}}`,
		`{"a": {"$eq": 1, "$in": [1]}}`, `[1]`, `"a"`, `{"a": {"$gt": 1`, `{"a": [{}]}`,
	} {
		if f, err := search.ParseFilter(text); err == nil {
			t.Errorf("%s is read as %v", text, f)
		}
	}
}

// TestFind_Pages: pages equal the parts of one long answer, up to a distance, with the requested columns.
func TestFind_Pages(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 60)
	question := vector.Of("question", dims)
	for name, p := range r.pipelines {
		all := r.find(p, search.Request{Vector: question, Rows: 60})
		var paged []search.Hit
		for offset := 0; offset < 60; offset += 7 {
			paged = append(paged, r.find(p, search.Request{Vector: question, Rows: 7, Offset: offset})...)
		}
		if !slices.Equal(keys(paged), keys(all)) {
			t.Errorf("%s: by pages %v, want %v", name, keys(paged), keys(all))
		}
		most := *all[20].Distance
		within := slices.IndexFunc(all, func(h search.Hit) bool { return *h.Distance > most })
		if got := r.find(p, search.Request{Vector: question, Rows: 60, MaxDistance: &most}); len(got) != within {
			t.Errorf("%s: %d rows up to the distance of row 21, want %d", name, len(got), within)
		}
		similar, err := search.Similar(t.Context(), r.pool, p, "9", search.Request{Rows: 59})
		second, err2 := search.Similar(t.Context(), r.pool, p, "9", search.Request{Rows: 3, Offset: 5})
		if err := errors.Join(err, err2); err != nil || !slices.Equal(keys(second), keys(similar)[5:8]) {
			t.Errorf("%s: similar rows 6 to 8 are %v, %v, of %v", name, keys(second), err, keys(similar))
		}
		var wrong *search.BadRequestError
		for _, bad := range []search.Request{
			{Rows: 1, Offset: -1},
			{Rows: 1, Offset: search.MaxRows},
			{Rows: 0},
			{Rows: 1, Columns: []string{"nosuch"}},
			{Rows: 1, Columns: []string{`id" FROM pg_authid --`}},
		} {
			bad.Vector = question
			if _, err := search.Find(t.Context(), r.pool, p, bad); !errors.As(err, &wrong) {
				t.Errorf("%s: %+v: %v, want a bad request", name, bad, err)
			}
		}
	}
	r.db.MustExec(`UPDATE docs SET body = repeat('x', 100000) WHERE id = 7`)
	hits := r.find(r.pipelines["table"], search.Request{
		Vector: vector.Of("row 7", dims), Rows: 1, Columns: []string{"Status; --", "mood", "tags", "deleted_at", "body"},
	})
	var got map[string]any
	if err := json.Unmarshal(hits[0].Columns, &got); err != nil || len(got["body"].(string)) != 65536 {
		t.Fatalf("%.200s: %v", hits[0].Columns, err)
	}
	delete(got, "body")
	want := map[string]any{"id": 7.0, "Status; --": "odd", "mood": "bad", "tags": map[string]any{}, "deleted_at": nil}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("columns %v, want %v", got, want)
	}
}

// TestFind_FreshOnly: rows with pending or failed tasks are left out, and others take their places.
func TestFind_FreshOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 20)
	for name, p := range r.pipelines {
		all := r.find(p, search.Request{Vector: vector.Of("question", dims), Rows: 20})
		r.db.MustExec(`DELETE FROM embedsidecar.task`)
		for i, state := range []string{"todo", "failed", "cancelled"} {
			r.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, state)
				VALUES ($1, $2, 1, pg_current_xact_id(), '0/1', '0/1', now(), $3::text::embedsidecar.task_state)`, p.ID, all[i].Key, state)
		}
		fresh := r.find(p, search.Request{Vector: vector.Of("question", dims), Rows: 3, FreshOnly: true})
		if !slices.Equal(keys(fresh), keys(all)[3:6]) {
			t.Errorf("%s: %v, want %v of %v", name, keys(fresh), keys(all)[3:6], keys(all))
		}
	}
}

func TestFind_Hybrid(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 150)
	r.db.MustExec("UPDATE docs SET body = 'the error code is zxq0x80070057' WHERE id = 150")
	r.db.MustExec("UPDATE docs SET body = 'an error, and more errors' WHERE id IN (140, 141)")
	question := vector.Of("question", dims)
	for name, p := range r.pipelines {
		near := keys(r.find(p, search.Request{Vector: question, Rows: 100}))
		hits := r.find(p, search.Request{
			Vector: question, Text: "errors zxq0x80070057", Hybrid: true, Language: "english",
			Rows: 10,
		})
		if len(hits) != 10 {
			t.Fatalf("%s: %d rows", name, len(hits))
		}
		// The expected score: ranks by distance, and ranks of words from the server.
		words := testenv.Values[string](r.db, `SELECT id::text FROM docs, (SELECT 'error | zxq0x80070057'::tsquery AS q) AS q
			WHERE to_tsvector('english', coalesce(title, '') || ' ' || coalesce(body, '')) @@ q
			ORDER BY ts_rank_cd(to_tsvector('english', coalesce(title, '') || ' ' || coalesce(body, '')), q) DESC, id`)
		if len(words) != 3 {
			t.Fatalf("rows with the words: %v", words)
		}
		for i, h := range hits {
			want := 0.0
			if at := slices.Index(near, h.Key); at >= 0 {
				want += 1 / (60 + float64(at+1))
			}
			if at := slices.Index(words, h.Key); at >= 0 {
				want += 1 / (60 + float64(at+1))
			}
			if p.Stored != pipeline.StoredBit && math.Abs(*h.Score-want) > 1e-12 { // many rows have equal bit distances
				t.Errorf("%s: row %s scores %v, want %v", name, h.Key, *h.Score, want)
			}
			if i > 0 && *h.Score > *hits[i-1].Score {
				t.Errorf("%s: row %s is better than the one before it", name, h.Key)
			}
		}
		for _, word := range words {
			if !slices.Contains(keys(hits), word) {
				t.Errorf("%s: row %s has the words and is not among %v", name, word, keys(hits))
			}
		}
	}
	p := r.pipelines["table"]
	for _, text := range []string{
		`a & b | !c:* <-> 'x' \ ''`, `\`, `'`, `"`, "(((", `x' || pg_sleep(10) || '`, "the",
		"😀", "http://a.example/?b=c&d='e'\\f", strings.Repeat("word ", 5000),
	} {
		if hits := r.find(p, search.Request{Vector: question, Text: text, Hybrid: true, Rows: 3}); len(hits) != 3 {
			t.Errorf("%.40q: %d rows", text, len(hits))
		}
	}
	var wrong *search.BadRequestError
	if _, err := search.Find(t.Context(), r.pool, p, search.Request{
		Vector: question, Text: "x", Hybrid: true,
		Language: "klingon'", Rows: 3,
	}); !errors.As(err, &wrong) {
		t.Errorf("a language that is not there: %v", err)
	}

	// The explanation names the index statement, and the created index is used.
	request := search.Request{Vector: question, Text: "zxq0x80070057", Hybrid: true, Language: "english", Rows: 3}
	e, err := search.Explain(t.Context(), r.pool, p, request)
	if err != nil {
		t.Fatal(err)
	}
	r.db.MustExec(strings.Replace(e.Index, "CONCURRENTLY ON", "CONCURRENTLY docs_words ON", 1))
	r.db.MustExec(fmt.Sprintf(`ALTER DATABASE "%s" SET enable_seqscan = off`, r.db.Name))
	r.pool.Reset()
	if e, err = search.Explain(t.Context(), r.pool, p, request); err != nil ||
		!strings.Contains(strings.Join(e.Plan, "\n"), "docs_words") {
		t.Errorf("the index %s is not used (%v):\n%s", e.Index, err, strings.Join(e.Plan, "\n"))
	}
}
