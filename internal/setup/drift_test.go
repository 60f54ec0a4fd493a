package setup_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestRefresh_AnIVFFlatIndexThatHasDriftedIsRebuilt: only when more than half of the vectors were written after its
// lists were computed. Searches and writers get their locks meanwhile, what an interrupted rebuild left is dropped, and
// the user's own indexes are left alone.
func TestRefresh_AnIVFFlatIndexThatHasDriftedIsRebuilt(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()),
			"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)",
			"INSERT INTO docs SELECT i, 't', 'b' FROM generate_series(1, 100) i")
		spec := docs()
		spec.IntoColumn, spec.IntoTable = "", "docs_embedding"
		p := b.init(b.options(b.SlotName(), spec)).Pipelines[0]
		p.Index = pipeline.IndexIVFFlat
		b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
		write := func(from, to int) {
			t.Helper()
			b.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, text_hash, vector_hash, generation, lsn)
				SELECT $1, i::text, '', '\x00', '', 1, '0/0' FROM generate_series($2::int, $3::int) i`, p.ID, from, to)
		}
		step := func(want indexes.State) {
			t.Helper()
			got, err := indexes.Refresh(t.Context(), b.pool, &p)
			if err != nil || got != want {
				t.Fatalf("%s, %v, want %s", got, err, want)
			}
		}
		names := func(want string) {
			t.Helper()
			got := testenv.Values[string](b.Database, `SELECT x.relname || CASE WHEN i.indisvalid THEN '' ELSE ' invalid' END
				FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
				WHERE m.amname = 'ivfflat' ORDER BY 1`)
			if strings.Join(got, ", ") != want {
				t.Fatalf("indexes %q, want %q", got, want)
			}
		}
		write(1, 10)
		if state, _, err := indexes.Build(t.Context(), b.pool, &p); err != nil || state != indexes.Built {
			t.Fatal(state, err)
		}
		step(indexes.There)
		write(11, 20) // exactly half
		step(indexes.There)
		write(21, 21)

		searching, stop := context.WithCancel(t.Context())
		var searches sync.WaitGroup
		for _, sql := range []string{
			"SELECT count(*) FROM (SELECT FROM docs_embedding ORDER BY embedding <=> (SELECT embedding FROM docs_embedding LIMIT 1)) AS s",
			"UPDATE docs_embedding SET generation = generation WHERE id = 1",
		} {
			conn, err := pgx.Connect(t.Context(), b.URL(testenv.Owner))
			if err != nil {
				t.Fatal(err)
			}
			searches.Go(func() {
				defer func() { _ = conn.Close(context.WithoutCancel(searching)) }()
				for searching.Err() == nil {
					_, err := conn.Exec(searching, "SET lock_timeout = '1s'; "+sql)
					if err != nil && searching.Err() == nil {
						t.Errorf("meanwhile: %v", err)
						return
					}
				}
			})
		}
		step(indexes.Built)
		stop()
		searches.Wait()
		names("docs_embedding_embedding_ivfflat_2")
		step(indexes.There)

		// An index without a build time counts as built now.
		b.MustExec("COMMENT ON INDEX docs_embedding_embedding_ivfflat_2 IS NULL")
		step(indexes.There)
		write(22, 50)
		// An interrupted build, and then a rebuild whose old index still exists.
		b.MustExec("CREATE INDEX docs_embedding_embedding_ivfflat ON docs_embedding USING ivfflat (embedding vector_cosine_ops)")
		b.MustExecSuper("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'docs_embedding_embedding_ivfflat'::regclass")
		step(indexes.Built)
		names("docs_embedding_embedding_ivfflat")
		b.MustExec("CREATE INDEX docs_embedding_embedding_ivfflat_2 ON docs_embedding USING ivfflat (embedding vector_cosine_ops)")
		step(indexes.Built)
		names("docs_embedding_embedding_ivfflat_2")

		b.MustExec("ALTER INDEX docs_embedding_embedding_ivfflat_2 RENAME TO mine")
		b.MustExec("UPDATE embedsidecar.ledger SET written_at = now() + interval '1 hour'")
		step(indexes.There)
		names("mine")
	})
}
