package setup_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
)

// A column is searched page by page: the only vector of another program is near the end, or in the last of several
// partitions.
func TestP4_AVectorIsFoundPageByPage(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{
		"one table": "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, embedding public.vector(3)) WITH (fillfactor = 10)",
		"partitions": `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text,
			embedding public.vector(3)) PARTITION BY RANGE (id);
			CREATE TABLE docs_a PARTITION OF docs FOR VALUES FROM (0) TO (1000); CREATE TABLE "docs B" PARTITION OF docs FOR
			VALUES FROM (1000) TO (10000) WITH (fillfactor = 10)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, table)
			b.MustExec("INSERT INTO docs SELECT i, repeat(md5(i::text), 20), 'x' FROM generate_series(1, 5000) AS i")
			o := b.options(b.SlotName(), docs())
			o.DryRun = true
			b.init(o) // there is no vector
			b.MustExec("UPDATE docs SET embedding = '[1,2,3]' WHERE id = 4990")
			_, err := setup.Init(t.Context(), o)
			wantError[*refusal.ConfigError](t, err, "holds vectors that this pipeline did not write")
		})
	}
}
