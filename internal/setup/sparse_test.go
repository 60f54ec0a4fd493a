package setup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestResolve_TheTypeFollowsTheModel(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, dense vector, half halfvec(3), sparse sparsevec(3), wide sparsevec(30522), any_sparse sparsevec)",
		"CREATE TABLE places (id bigint, chunk_no int NOT NULL DEFAULT 0, generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL, embedding sparsevec(30522) NOT NULL, PRIMARY KEY (id, chunk_no))")
	for name, tt := range map[string]struct {
		column, table, index string
		typ                  pipeline.Stored
		model                catalog.Vectors
		words                []string
	}{
		"sparse":       {column: "wide", typ: "sparsevec", model: catalog.Vectors{Dims: 30522, Sparse: true}},
		"into a table": {table: "places", model: catalog.Vectors{Dims: 30522, Sparse: true}},
		"of any width": {column: "any_sparse", model: catalog.Vectors{Dims: 1 << 24, Sparse: true}},
		"wider than any": {
			column: "any_sparse", model: catalog.Vectors{Dims: 1<<24 + 1, Sparse: true},
			words: []string{"16777216"},
		},
		"to be indexed": {column: "wide", index: "hnsw", model: catalog.Vectors{Dims: 30522, Sparse: true}},
		"of another width": {
			column: "sparse", model: catalog.Vectors{Dims: 30522, Sparse: true},
			words: []string{"30522 wide", "3"},
		},
		"into vector": {
			column: "dense", model: catalog.Vectors{Dims: 3, Sparse: true},
			words: []string{"vectors are sparse", "of type vector", "as sparsevec"},
		},
		"into half": {
			column: "half", typ: "halfvec", model: catalog.Vectors{Dims: 3, Sparse: true},
			words: []string{"vectors are sparse", "of type halfvec"},
		},
		"into bits to be made": {
			column: "nope", typ: "bit", model: catalog.Vectors{Dims: 3, Sparse: true},
			words: []string{"vectors are sparse", "of type bit"},
		},
		"to be made": {
			column: "nope", model: catalog.Vectors{Dims: 30522, Sparse: true},
			words: []string{"does not exist", "init"},
		},
		"vector is configured": {
			column: "wide", typ: "vector", model: catalog.Vectors{Dims: 30522, Sparse: true},
			words: []string{"of type sparsevec, not vector as configured"},
		},
		"dense into it": {column: "sparse", model: catalog.Vectors{Dims: 3}, words: []string{
			"vectors are dense",
			"of type sparsevec", "vector, halfvec or bit",
		}},
		"dense into a table": {table: "places", model: catalog.Vectors{Dims: 3}, words: []string{"vectors are dense"}},
		"dense into what will be": {
			column: "nope", typ: "sparsevec", model: catalog.Vectors{Dims: 3},
			words: []string{"vectors are dense"},
		},
	} {
		spec := docs()
		spec.IntoColumn, spec.IntoTable, spec.IntoType, spec.Index = tt.column, tt.table, tt.typ, tt.index
		p, _, err := resolve.Resolve(t.Context(), b.pool, spec, tt.model)
		if tt.words != nil {
			wantError[*refusal.ConfigError](t, err, tt.words...)
		} else if err != nil || p.Stored != pipeline.StoredSparse || p.Dims != tt.model.Dims {
			t.Errorf("%s: %s of %d, %v", name, p.Stored, p.Dims, err)
		}
	}
}

// An old pgvector without sparsevec is simulated by renaming the type.
func TestResolve_SparseNeedsANewerPgvector(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
	b.MustExecSuper("ALTER TYPE sparsevec RENAME TO not_yet")
	spec := docs()
	spec.IntoColumn = "embedding"
	_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 30522, Sparse: true})
	wantError[*refusal.ConfigError](t, err, "sparsevec needs pgvector 0.7 or newer", "ALTER EXTENSION vector UPDATE")
	if _, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3}); err == nil ||
		strings.Contains(err.Error(), "0.7") {
		t.Errorf("a dense model: %v", err)
	}
}

func TestBuildIndex_OfSparseVectors(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
	column, table := docs(), docs()
	column.Name, column.IntoColumn = "column", "places"
	table.Name, table.IntoColumn, table.IntoTable = "table", "", "docs_places"
	o := b.options(b.SlotName(), column, table)
	for name := range o.Descriptions {
		o.Descriptions[name] = embed.Description{Plugin: "fake", Model: "m", Fingerprint: "f", Dims: 30522, Sparse: true}
	}
	made := b.init(o)
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
	build := func(p *pipeline.Pipeline) error {
		_, _, err := indexes.Build(t.Context(), b.pool, p)
		return err
	}
	b.MustExec("INSERT INTO docs (id, places) SELECT n, (SELECT '{' || string_agg(i || ':1', ',') || '}/30522' FROM generate_series(1, n) AS i)::sparsevec FROM unnest('{1000,1001}'::int[]) AS n")
	wantError[*refusal.ConfigError](t, build(&made.Pipelines[0]), "up to 1000 numbers", "places", "leave index out")
	b.MustExec("DELETE FROM docs WHERE id = 1001")
	for i := range made.Pipelines {
		if p := &made.Pipelines[i]; p.Stored != pipeline.StoredSparse || build(p) != nil || build(p) != nil {
			t.Errorf("%s of type %s: no index", p.Name, p.Stored)
		}
	}
	if got := testenv.Values[string](b.Database,
		"SELECT o.opcname::text FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indisvalid AND o.opcname LIKE 'sparse%'"); !slices.Equal(got, []string{"sparsevec_ip_ops", "sparsevec_ip_ops"}) {
		t.Errorf("indexes of %v", got)
	}
}
