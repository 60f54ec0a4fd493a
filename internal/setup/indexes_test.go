package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// indexes returns the indexes of a pipeline, as "state name" in order.
func (b *base) indexes(pool *pgxpool.Pool, p *pipeline.Pipeline) ([]indexes.Index, []string) {
	b.t.Helper()
	found, err := indexes.Of(b.t.Context(), pool, p)
	if err != nil {
		b.t.Fatal(err)
	}
	words := make([]string, len(found))
	for i := range found {
		words[i] = strings.TrimSpace(string(found[i].State) + " " + found[i].Name)
	}
	return found, words
}

// are checks them, and runs the statements that they recommend.
func (b *base) are(p *pipeline.Pipeline, mend bool, want ...string) []indexes.Index {
	b.t.Helper()
	found, words := b.indexes(b.pool, p)
	if !slices.Equal(words, want) {
		b.t.Fatalf("indexes %q, want %q: %+v", words, want, found)
	}
	for _, i := range found {
		for _, sql := range i.SQL {
			if mend {
				b.MustExec(sql)
			}
		}
	}
	return found
}

func TestIndexes_TellWhatIsThereAndHowToMendIt(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()),
			"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)",
			"CREATE TABLE parts (region text, id bigint, title text, body text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
			"CREATE TABLE parts_north PARTITION OF parts FOR VALUES IN ('north')",
			"CREATE TABLE parts_rest PARTITION OF parts DEFAULT")
		spec, parts := docs(), docs()
		spec.IntoColumn, spec.IntoTable = "", "docs_embedding"
		parts.Name, parts.Table = "parts", "parts"
		o := b.options(b.SlotName(), spec, parts)
		made := b.init(o)
		p, partitioned := &made.Pipelines[0], &made.Pipelines[1]
		b.are(partitioned, true, "none", "none")
		b.are(partitioned, true, "ready parts_north_embedding_hnsw", "ready parts_rest_embedding_hnsw")

		const ours = "docs_embedding_embedding_hnsw"
		none := b.are(p, true, "none")
		if none[0].Rows != nil && *none[0].Rows != 0 || !strings.Contains(none[0].SQL[0], "vector_cosine_ops") {
			t.Errorf("without an index: %+v", none[0])
		}
		b.are(p, false, "ready "+ours)
		wide := *p
		wide.Dims = 3000
		b.MustExec(`DROP INDEX ` + ours)
		if i := b.are(&wide, true, "none")[0]; i.SQL != nil || !strings.Contains(i.Detail, "up to 2000") {
			t.Errorf("3,000 dimensions: %+v", i)
		}
		b.MustExec(`CREATE INDEX euclid ON docs_embedding USING hnsw (embedding vector_l2_ops)`)
		b.MustExec(`CREATE INDEX partly ON docs_embedding USING ivfflat (embedding vector_cosine_ops) WITH (lists = 1) WHERE id > 10`)
		other := b.are(p, true, "other euclid", "other partly", "none")
		if !strings.Contains(other[0].Detail, "vector_l2_ops") || !strings.Contains(other[1].Detail, "WHERE") ||
			other[0].SQL != nil || other[1].SQL != nil {
			t.Errorf("those for other questions: %+v", other)
		}
		b.are(p, false, "ready "+ours, "other euclid", "other partly")
		b.MustExec("DROP INDEX euclid, partly")

		// An open transaction blocks a build, which is then interrupted.
		b.MustExec("DROP INDEX " + ours)
		b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
		role := b.connect(b.RunRole(made.Pipelines...))
		open := b.hold("INSERT INTO docs_embedding (id, generation, text_hash, embedded_at, embedding) VALUES (1, 1, '', now(), array_fill(1, ARRAY[3])::vector)")
		built := make(chan error, 1)
		go func() {
			_, _, err := indexes.Build(t.Context(), b.pool, p)
			built <- err
		}()
		testenv.Eventually(t, waitFor, func() (bool, string) {
			found, words := b.indexes(b.pool, p)
			return words[0] == "building "+ours && strings.HasPrefix(found[0].Phase, "waiting for"), fmt.Sprintf("%+v", found)
		})
		if _, words := b.indexes(role, p); words[0] != "building "+ours {
			t.Errorf("as a role that may not see what others build: %q", words)
		}
		b.MustExecSuper("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index WHERE datname = current_database()")
		if err := <-built; err == nil {
			t.Fatal("a build whose session was ended did not fail")
		}
		testenv.Eventually(t, waitFor, func() (bool, string) { // the session ends a moment later
			n := testenv.Value[int](b.Database,
				"SELECT count(*) FROM pg_stat_progress_create_index WHERE datname = current_database()")
			return n == 0, "it still builds"
		})
		for _, pool := range []*pgxpool.Pool{b.pool, role} {
			if found, words := b.indexes(pool, p); !slices.Equal(words, []string{"invalid " + ours}) ||
				!strings.HasPrefix(found[0].SQL[0], "REINDEX INDEX CONCURRENTLY") {
				t.Errorf("after it was broken off: %+v", found)
			}
		}
		at := func(f check.Finding) bool { return strings.HasPrefix(f.Name, "index of ") && f.Status == check.Warn }
		if all := b.check(o); !slices.ContainsFunc(all, at) {
			t.Errorf("check does not know: %+v", all)
		}
		if err := open.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if state, _, err := indexes.Build(t.Context(), b.pool, p); err != nil || state != indexes.Built {
			t.Fatalf("begun anew: %s, %v", state, err)
		}
		b.are(p, false, "ready "+ours)

		// An interrupted REINDEX leaves this beside the index that it was to replace.
		b.MustExec("CREATE INDEX left_over ON docs_embedding USING hnsw (embedding vector_cosine_ops)")
		b.MustExecSuper("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'left_over'::regclass")
		b.are(p, true, "ready "+ours, "invalid left_over")
		b.are(p, false, "ready "+ours)
	})
}

// An index that was built over rows changed in place is not used by transactions older than it.
func TestIndexes_WaitForOlderTransactions(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()), plainDocs)
		p := &b.init(b.options(b.SlotName(), docs())).Pipelines[0]
		b.MustExec("INSERT INTO docs (id) SELECT generate_series(1, 20)")
		older := b.hold("SELECT pg_current_xact_id()")
		b.MustExec("UPDATE docs SET embedding = array_fill(1, ARRAY[3])::vector")
		b.MustExec("CREATE INDEX soon ON docs USING hnsw (embedding vector_cosine_ops)")
		used := func() bool {
			t.Helper()
			var plan []string
			err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off"); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(),
					"EXPLAIN SELECT id FROM public.docs WHERE embedding IS NOT NULL ORDER BY embedding OPERATOR(public.<=>) '[1,2,3]' LIMIT 1")
				if err != nil {
					return err
				}
				plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(strings.Join(plan, " "), "using soon")
		}
		if used() {
			t.Fatal("the server uses it: nothing is tested")
		}
		if i := b.are(p, false, "building soon")[0]; !strings.Contains(i.Progress(), "waiting for") {
			t.Errorf("%+v", i)
		}
		if err := older.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, waitFor, func() (bool, string) { // other tests have transactions too
			return used(), "the index is not used"
		})
		b.are(p, false, "ready soon")
	})
}

// Every search has the condition that the vector is not NULL: a partial index with that condition serves all searches,
// if the server recognizes it.
func TestIndexes_OverTheRowsThatHaveAVector(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()), plainDocs)
		made := b.init(b.options(b.SlotName(), docs(), side()))
		b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
		for i, table := range []string{"docs", "docs_embedding"} {
			p := &made.Pipelines[i]
			b.MustExec("CREATE INDEX filled" + table + " ON " + table +
				" USING hnsw (embedding vector_cosine_ops) WHERE embedding IS NOT NULL")
			var plan []string
			err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off"); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), "EXPLAIN SELECT id FROM public."+table+
					" WHERE embedding IS NOT NULL ORDER BY embedding OPERATOR(public.<=>) '[1,2,3]'::public.vector LIMIT 1")
				if err != nil {
					return err
				}
				plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			used := strings.Contains(strings.Join(plan, " "), "using filled"+table)
			if !used && table == "docs" {
				t.Fatalf("it is not used: %q", plan)
			}
			found, words := b.indexes(b.pool, p)
			if (words[0] == "ready filled"+table) != used || used != (len(words) == 1) {
				t.Errorf("%s: %+v, and the server's plan is %q", table, found, plan)
			}
			want := indexes.There
			if !used {
				want = indexes.Built
			}
			if state, _, err := indexes.Build(t.Context(), b.pool, p); err != nil || state != want {
				t.Errorf("%s: then building is %s, want %s: %v", table, state, want, err)
			}
		}
	})
}
