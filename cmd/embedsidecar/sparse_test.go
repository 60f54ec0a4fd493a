package main

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A sparse model from the command line: its columns are created, indexed and searched, and accept no dense vectors.
func TestSparse_FromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newStage(t, 50)
	s.set("EMBEDSIDECAR_PLUGIN_SPARSE=true")
	s.set("EMBEDSIDECAR_PLUGIN_DIMS=30522")
	_, stderr := s.once(2, "--set", "pipelines[0].into.type=vector")
	s.has(stderr, "vectors are sparse", "of type vector", "hint: sparse vectors are stored as sparsevec")
	s.once(0, "--index", "hnsw")
	s.has(testenv.Value[string](s.db,
		"SELECT indexdef FROM pg_indexes WHERE tablename = 'docs' AND indexdef LIKE '%hnsw%'"), "sparsevec_ip_ops")
	if got := testenv.Value[string](s.db,
		"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'docs'::regclass AND attname = 'embedding'"); got != "sparsevec(30522)" {
		t.Errorf("the column is of type %s", got)
	}
	s.run(0, "verify", "--deep", "50")
	for _, how := range [][]string{{"search", "public.docs", "title 7 body"}, {
		"search", "public.docs", "title 7",
		"--hybrid",
	}, {"search", "public.docs", "--like", "7"}} {
		stdout, _ := s.run(0, append(how, "-k", "3", "-o", "json")...)
		hits := decoded[[]search.Hit](t, stdout)
		if len(hits) != 3 || how[2] != "--like" && hits[0].Key != "7" || hits[0].Distance == nil || *hits[0].Distance >= 0 {
			t.Errorf("%q: found %+v", how, hits)
		}
	}
	s.run(0, "check")

	// The dense model of the same plugin is a different model.
	s.set("EMBEDSIDECAR_PLUGIN_SPARSE=false")
	s.set("EMBEDSIDECAR_PLUGIN_DIMS=8")
	_, stderr = s.once(2)
	s.has(stderr, "vectors are dense", "of type sparsevec", "vector, halfvec or bit")
	if _, stderr = s.run(2, "search", "public.docs", "title 7"); stderr == "" {
		t.Error("a dense vector was looked for among sparse ones")
	}
}
