package workload_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

const (
	dims      = 3
	waitLimit = 5 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// embed makes different vectors for different texts.
func embed(text string) ([]float32, bool) {
	if strings.TrimSpace(text) == "" {
		return nil, true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	sum := h.Sum64()
	return []float32{1, float32(sum & 0xfff), float32(sum >> 52)}, false // a halfvec ends at 65504
}

func create(t *testing.T, db *testenv.Database, shapes []workload.Shape) []workload.Shape {
	t.Helper()
	shapes, err := workload.Create(t.Context(), db, shapes)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shapes {
		if s.IntoTable == "" {
			continue
		}
		var keys, names []string
		for _, c := range s.Key {
			name := pgx.Identifier{c.Name}.Sanitize()
			keys, names = append(keys, name+" "+c.Type), append(names, name)
		}
		db.MustExec(fmt.Sprintf("CREATE TABLE %s (%s, chunk_no int NOT NULL DEFAULT 0, embedding %s(%d), PRIMARY KEY (%s, chunk_no))",
			s.Into(), strings.Join(keys, ", "), s.Stored.Name(), s.Dims, strings.Join(names, ", ")))
	}
	return shapes
}

// embedAll does a sidecar's work in one step.
func embedAll(t *testing.T, db *testenv.Database, shapes []workload.Shape) {
	t.Helper()
	for _, s := range shapes {
		text := s.Text
		if text == "" {
			var parts []string
			for _, c := range s.Columns {
				parts = append(parts, "nullif("+pgx.Identifier{c}.Sanitize()+"::text, '')")
			}
			text = `concat_ws(E'\n\n', ` + strings.Join(parts, ", ") + ")"
		}
		if s.Filter != "" {
			text = "CASE WHEN " + s.Filter + " THEN " + text + " END"
		}
		var names, joins []string
		for _, c := range s.Key {
			name := pgx.Identifier{c.Name}.Sanitize()
			names, joins = append(names, name), append(joins, "s."+name+" = k."+name)
		}
		list := strings.Join(names, ", ")
		var from []string
		var vectors []any
		for i, text := range testenv.Values[*string](db, fmt.Sprintf("SELECT %s FROM %s ORDER BY %s", text, s.Source(),
			list)) {
			var vector []float32
			if text != nil {
				vector, _ = embed(*text)
			}
			vectors = append(vectors, vector)
			from = append(from, fmt.Sprintf("(%d, $%d::real[]::vector)", i+1, i+1))
		}
		if len(vectors) == 0 {
			continue
		}
		stored := map[string]string{
			"vector": "v.vector", "halfvec": "v.vector::halfvec",
			"bit": "binary_quantize(v.vector)",
		}[s.Stored.Name()]
		rows := fmt.Sprintf("(SELECT %s, row_number() OVER (ORDER BY %s) AS n FROM %s) AS k JOIN (VALUES %s) AS v (n, vector) USING (n)", list, list, s.Source(), strings.Join(from, ", "))
		if s.IntoTable == "" {
			db.MustExec(fmt.Sprintf("UPDATE %s AS s SET %s = %s FROM %s WHERE %s", s.Source(),
				pgx.Identifier{s.IntoColumn}.Sanitize(), stored, rows, strings.Join(joins, " AND ")), vectors...)
			continue
		}
		db.MustExec("DELETE FROM " + s.Into())
		db.MustExec(fmt.Sprintf("INSERT INTO %s (%s, embedding) SELECT k.%s, %s FROM %s WHERE v.vector IS NOT NULL", s.Into(),
			list, strings.Join(names, ", k."), stored, rows), vectors...)
	}
}

func TestWorkload_DoesEverythingOnEveryShapeAndTheOracleAgrees(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		shapes := create(t, db, workload.Shapes(dims))
		run, err := workload.Start(t.Context(), db.URL(testenv.Owner), shapes, workload.Options{
			Seed: 1, Writers: 3,
			Transactions: 500, Rows: 60,
		})
		if err != nil {
			t.Fatal(err)
		}
		stats, err := run.Wait()
		if err != nil {
			t.Fatal(err)
		}
		t.Log(stats)
		if stats.Committed < 1000 || stats.RolledBack == 0 || stats.Lost > 0 || stats.Conflicts > 300 {
			t.Errorf("an odd mixture: %s", stats)
		}
		for _, name := range workload.Operations() {
			if stats.Operations[name] == 0 {
				t.Errorf("operation %s was never committed", name)
			}
		}
		embedAll(t, db, shapes)
		report := workload.Settle(t, db, shapes, embed, waitLimit)
		if report.Vectors == 0 || report.Rows == report.Vectors {
			t.Errorf("want rows with and rows without a vector: %s", report)
		}
		for _, s := range shapes {
			if testenv.Value[int](db, "SELECT count(*) FROM "+s.Source()) == 0 {
				t.Logf("%s ended empty", s.Name)
			}
		}
	})
}

func TestCheck_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	shapes := create(t, db, workload.Named(workload.Shapes(dims), "quoted", "citexts", "filtered"))
	db.MustExec(`INSERT INTO "Mixed ""Case"""."Döcs; DROP" ("Id""", "select") VALUES (1, 'one'), (2, 'two'), (3, ' '), (4, 'four')`)
	db.MustExec(`INSERT INTO citexts (email, body) VALUES ('Ann', 'one'), ('ben', 'two'), ('cyd', NULL)`)
	db.MustExec(`INSERT INTO filtered (id, title, body, published) VALUES (1, 'a', 'b', true), (2, 'a', NULL, true), (3, 'c', 'd', false), (4, NULL, 'd', true)`)
	embedAll(t, db, shapes)
	report, err := workload.Check(t.Context(), db.Pool, shapes, embed)
	if err != nil || !report.OK() || report.Rows != 11 || report.Vectors != 7 {
		t.Fatalf("before the damage: %s, %v", report, err)
	}
	db.MustExec(`UPDATE "Mixed ""Case"""."Döcs; DROP" SET "The Vector" = NULL WHERE "Id""" = 1`)
	db.MustExec(`UPDATE "Mixed ""Case"""."Döcs; DROP" SET "select" = 'changed' WHERE "Id""" = 2`)
	db.MustExec(`UPDATE "Mixed ""Case"""."Döcs; DROP" SET "The Vector" = '[1,2,3]' WHERE "Id""" = 3`)
	db.MustExec(`UPDATE citexts SET email = 'ANN' WHERE email = 'ann'`) // the same key: nothing is wrong
	db.MustExec(`DELETE FROM citexts WHERE email = 'ben'`)
	db.MustExec(`UPDATE filtered SET published = id = 3`)
	report, err = workload.Check(t.Context(), db.Pool, shapes, embed)
	if err != nil {
		t.Fatal(err)
	}
	got := report.String()
	for _, want := range []string{
		"10 rows, 2 vectors right, 2 missing, 1 stale, 3 unwanted, 1 orphans; tasks none",
		"missing: quoted 1: its text has 3 bytes",
		"missing: filtered 3: its text has 4 bytes",
		"stale: quoted 2: chunk 0 begins with",
		"unwanted: quoted 3: it has no text",
		"unwanted: filtered 1: the filter leaves it out",
		"orphan: citexts ben: there is no such row (chunk 0)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("report lacks %q:\n%s", want, got)
		}
	}
	if report.OK() {
		t.Error("the report is OK")
	}
}

func TestCheck_CountsOpenTasks(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	// Without a pipeline there can be no task; this is only about counting.
	db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT 1, i::text, (ARRAY['todo','failed','retrying'])[1 + i % 3]::embedsidecar.task_state, 1, '1', '0/1', '0/1',
		now() FROM generate_series(1, 6) i`)
	report, err := workload.Check(t.Context(), db.Pool, nil, embed)
	if err != nil {
		t.Fatal(err)
	}
	if report.Open() != 4 || report.Tasks["failed"] != 2 || report.OK() {
		t.Errorf("open %d, failed %d, OK %t; want 4, 2, false", report.Open(), report.Tasks["failed"], report.OK())
	}
}

func TestWorkload_IsTheSameFromTheSameSeed(t *testing.T) {
	t.Parallel()
	var seen [][]string
	for range 2 {
		db := testenv.DB(t)
		shapes := create(t, db, workload.Named(workload.Shapes(dims), "integers", "composite"))
		// Autovacuum may block a TRUNCATE for longer than a workload waits for a lock.
		db.MustExec(`ALTER TABLE integers SET (autovacuum_enabled = false); ALTER TABLE composite SET (autovacuum_enabled = false)`)
		run, err := workload.Start(t.Context(), db.URL(testenv.Owner), shapes, workload.Options{
			Seed: 7, Writers: 1,
			Transactions: 150,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, testenv.Values[string](db,
			`SELECT r::text FROM integers r UNION ALL SELECT r::text FROM composite r ORDER BY 1`))
	}
	if len(seen[0]) == 0 || !slices.Equal(seen[0], seen[1]) {
		t.Errorf("two runs from one seed left %d and %d rows that differ", len(seen[0]), len(seen[1]))
	}
}

func TestWorkload_GoesOnThroughRestartsAndBrokenConnections(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{Major: testenv.Majors(t)[0]})
	db := testenv.DB(t, testenv.On(server))
	shapes := create(t, db, workload.Named(workload.Shapes(dims), "integers", "texts"))
	proxy := testenv.StartProxy(t, server.Addr())
	run, err := workload.Start(t.Context(), db.URLVia(proxy.Addr(), testenv.Owner), shapes, workload.Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	progress := func(what string) {
		t.Helper()
		before := run.Stats().Committed
		testenv.Eventually(t, waitLimit, func() (bool, string) {
			now := run.Stats()
			return now.Committed >= before+20, fmt.Sprintf("after %s: %s", what, now)
		})
	}
	progress("the start")
	for _, mode := range []testenv.Mode{testenv.Fast, testenv.Immediate, testenv.Killed} {
		if err := server.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		progress(fmt.Sprintf("restart %d", mode))
	}
	proxy.Cut()
	progress("a cut")
	stats, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if stats.Lost == 0 {
		t.Errorf("no connection was lost: %s", stats)
	}
	db.Pool.Reset()
	embedAll(t, db, shapes)
	workload.Settle(t, db, shapes, embed, waitLimit)
}

func TestWorkload_EndsOnAnErrorThatIsNoAccident(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	shapes := create(t, db, workload.Named(workload.Shapes(dims), "integers"))
	db.MustExec(`ALTER TABLE integers DROP COLUMN body`)
	run, err := workload.Start(t.Context(), db.URL(testenv.Owner), shapes, workload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(); err == nil || !strings.Contains(err.Error(), `column "body"`) {
		t.Errorf("Wait: %v", err)
	}
}
