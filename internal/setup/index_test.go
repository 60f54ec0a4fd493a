package setup_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestBuildIndex_FitsItsDestination(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()),
			"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)",
			"CREATE TABLE parts (region text, id bigint, title text, body text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
			"CREATE TABLE parts_north PARTITION OF parts FOR VALUES IN ('north')",
			"CREATE TABLE parts_rest PARTITION OF parts DEFAULT")
		specs := []pipeline.Spec{}
		for i, stored := range []pipeline.Stored{pipeline.StoredVector, pipeline.StoredHalfvec, pipeline.StoredBit} {
			column, table := docs(), docs()
			column.Name, column.IntoColumn, column.IntoType = fmt.Sprint("column ", i), fmt.Sprint("Vector ", i), stored
			table.Name, table.IntoColumn, table.IntoTable, table.IntoType = fmt.Sprint("table ", i), "", fmt.Sprint("docs_", i),
				stored
			specs = append(specs, column, table)
		}
		parts := docs()
		parts.Name, parts.Table = "parts", "parts"
		specs = append(specs, parts)
		made := b.init(b.options(b.SlotName(), specs...))
		build := func(p *pipeline.Pipeline, want indexes.State) []string {
			t.Helper()
			state, statements, err := indexes.Build(t.Context(), b.pool, p)
			if err != nil || state != want {
				t.Fatalf("%s: %s, %v, want %s", p.Name, state, err, want)
			}
			return statements
		}
		first := &made.Pipelines[0]
		build(first, indexes.Waits) // for the scan
		b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")

		role := b.connect(b.RunRole(made.Pipelines...))
		state, statements, err := indexes.Build(t.Context(), role, first)
		if err != nil || state != indexes.Refused || len(statements) != 1 || !strings.Contains(statements[0],
			"CREATE INDEX CONCURRENTLY") {
			t.Errorf("as a role that does not own the table: %s, %q, %v", state, statements, err)
		}
		for i := range made.Pipelines {
			p := &made.Pipelines[i]
			build(p, indexes.Built)
			build(p, indexes.There)
		}
		valid := testenv.Values[string](b.Database,
			`SELECT c.relname || ': ' || o.opcname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
				JOIN pg_class c ON c.oid = i.indrelid
			JOIN pg_am m ON m.oid = x.relam JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE m.amname = 'hnsw' AND i.indisvalid
			ORDER BY 1`)
		want := "docs: bit_hamming_ops, docs: halfvec_cosine_ops, docs: vector_cosine_ops, docs_0: vector_cosine_ops, docs_1: halfvec_cosine_ops, docs_2: bit_hamming_ops, " +
			"parts_north: vector_cosine_ops, parts_rest: vector_cosine_ops"
		if got := strings.Join(valid, ", "); got != want {
			t.Errorf("indexes %s\nwant    %s", got, want)
		}

		// An interrupted build leaves an invalid index: the build is repeated.
		b.MustExecSuper(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = '"docs_Vector 0_hnsw"'::regclass`)
		build(first, indexes.Built)
		build(first, indexes.There)
	})
}
