package search_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_APoisonRowBreaksNoSearch: the text or the filter fails on some rows, with or without vectors. Every other row
// is found with its text, and the caller is not blamed.
func TestP5_APoisonRowBreaksNoSearch(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		const rows = 120
		r := newRig(t, major, rows)
		r.db.MustExec(`UPDATE docs SET body = format('{"t": "words of row %s", "s": "yes"}', id)`)
		r.db.MustExec("UPDATE docs SET body = 'not json' WHERE id IN (7, 90, 91)")
		r.db.MustExec(`CREATE FUNCTION public.checked(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
			$$ BEGIN IF t = 'not json' THEN RAISE EXCEPTION 'canary: %', t USING ERRCODE = 'ZZ001'; END IF; RETURN 'words of a row'; END $$`)
		question := vector.Of("row 7", dims) // the nearest row is poison
		for _, name := range []string{"table", "column"} {
			p := r.pipelines[name]
			for _, text := range []string{`(body::jsonb) ->> 't'`, `public.checked(body)`} {
				poisoned := *p
				poisoned.Text, poisoned.Columns = text, nil
				for _, hybrid := range []bool{false, true} {
					where := fmt.Sprintf("%s, %s, hybrid %v", name, text, hybrid)
					hits := r.find(&poisoned, search.Request{Vector: question, Rows: 200, Hybrid: hybrid, Text: "words row"})
					if len(hits) != rows || !hybrid && hits[0].Key != "7" {
						t.Errorf("%s: %d rows, want %d; the nearest is %s, want 7", where, len(hits), rows, hits[0].Key)
					}
					for _, h := range hits {
						bad := slices.Contains([]string{"7", "90", "91"}, h.Key)
						if bad != (h.Problem != "") || bad != (h.Text == "") || strings.Contains(h.Problem, "json") {
							t.Errorf("%s: row %s: text %q, problem %q", where, h.Key, h.Text, h.Problem)
						}
					}
				}
				similar, err := search.Similar(t.Context(), r.pool, &poisoned, "7", search.Request{Rows: 3})
				if err != nil || len(similar) != 3 || slices.Contains(keys(similar), "7") {
					t.Errorf("%s, %s: similar to the poison row: %v, %v", name, text, keys(similar), err)
				}
			}
			none := *p // a text that fails on every row, as in a wrong configuration
			none.Text, none.Columns = "title::regclass::text", nil
			if hits := r.find(&none, search.Request{Vector: question, Rows: 3}); len(hits) != 3 || hits[0].Problem == "" {
				t.Errorf("%s: a text that fails on every row: %v", name, hits)
			}
			filtered := *p
			filtered.Filter = `(body::jsonb) ->> 's' = 'yes'`
			for _, hybrid := range []bool{false, true} {
				hits := keys(r.find(&filtered, search.Request{Vector: question, Rows: 5, Hybrid: hybrid, Text: "row"}))
				if len(hits) != 5 || slices.Contains(hits, "7") || slices.Contains(hits, "90") {
					t.Errorf("%s: a filter that fails on some rows, hybrid %v: %v", name, hybrid, hits)
				}
			}
			// What fails without any row is the fault of the configuration.
			wrong := *p
			wrong.Text, wrong.Columns = "public.no_such_function(body)", nil
			for _, hybrid := range []bool{false, true} {
				_, err := search.Find(t.Context(), r.pool, &wrong, search.Request{
					Vector: question, Rows: 5, Hybrid: hybrid,
					Text: "row",
				})
				pg, ok := errors.AsType[*pgconn.PgError](err)
				if _, blamed := errors.AsType[*search.BadRequestError](err); !ok || blamed || pg.Code != "42883" {
					t.Errorf("%s: a text that cannot work, hybrid %v: %v", name, hybrid, err)
				}
			}
		}
	})
}

// TestP5_APoisonRowOfAPartitionBreaksNoSearch: rows are told apart by ctid, and partitions have the same ctids.
func TestP5_APoisonRowOfAPartitionBreaksNoSearch(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 1)
	r.db.MustExec("CREATE TABLE parted (id bigint PRIMARY KEY, body text, embedding vector(64)) PARTITION BY RANGE (id)")
	for i := range 3 {
		r.db.MustExec(fmt.Sprintf("CREATE TABLE parted_%d PARTITION OF parted FOR VALUES FROM (%d) TO (%d)", i, i*100,
			(i+1)*100))
	}
	r.db.MustExec(`INSERT INTO parted SELECT i, format('{"t": "words %s"}', i), $1::text::vector FROM generate_series(0, 299) AS i`, text(vector.Of("x", dims)))
	r.db.MustExec("UPDATE parted SET body = 'not json' WHERE id IN (3, 103, 250)")
	p := *r.pipelines["column"]
	p.Schema, p.Table, p.Partitioned, p.IntoColumn = "public", "parted", true, "embedding"
	p.OID = testenv.Value[uint32](r.db, "SELECT 'parted'::regclass::oid")
	p.IntoNumber = 3
	p.Text, p.Columns = `(body::jsonb) ->> 't'`, nil
	hits := r.find(&p, search.Request{Vector: vector.Of("x", dims), Rows: 1000, Hybrid: true, Text: "words"})
	worded := 0
	for _, h := range hits {
		if h.Text != "" {
			worded++
		}
	}
	if len(hits) != 300 || worded != 297 {
		t.Errorf("%d rows, %d with a text; want 300 and 297", len(hits), worded)
	}
}

// TestFind_BlamesNobodyForWhatHeDidNotGive: given values are checked first, and only they are rejected.
func TestFind_BlamesNobodyForWhatHeDidNotGive(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 5)
	p := r.pipelines["table"]
	for name, ask := range map[string]func() error{
		"filter": func() error {
			_, err := search.Find(t.Context(), r.pool, p, search.Request{
				Vector: vector.Of("x", dims), Rows: 1,
				Filter: search.Filters{
					"mood": {{Values: []string{"good"}}}, "tenant": {{Values: []string{"canary"}}},
				},
			})
			return err
		},
		"key": func() error {
			_, err := search.Similar(t.Context(), r.pool, p, "canary", search.Request{Rows: 1})
			return err
		},
	} {
		err := ask()
		want := map[string]string{
			"filter": `filter: a value for column "tenant" does not fit its type, integer`,
			"key":    `key: the value for column "id" does not fit its type, bigint`,
		}[name]
		if wrong, ok := errors.AsType[*search.BadRequestError](err); !ok || wrong.Problem != want {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}
