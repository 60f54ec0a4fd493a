package main

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/search"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestSearch_OverAnIndexThatIsBuiltAfterTheBackfill(t *testing.T) {
	t.Parallel()
	s := newStage(t, 50)
	s.once(0, "--into-type", "halfvec", "--index", "hnsw")
	index := testenv.Value[string](s.db, "SELECT indexdef FROM pg_indexes WHERE tablename = 'docs' AND indexdef LIKE '%hnsw%'")
	s.has(index, "halfvec_cosine_ops")
	s.run(0, "verify", "--deep", "50")

	stdout, _ := s.run(0, "search", "public.docs", "title 7", "--hybrid", "-k", "3", "--filter", "id=7", "-o", "json")
	hits := decoded[[]search.Hit](t, stdout)
	if len(hits) != 1 || hits[0].Key != "7" || hits[0].Score == nil {
		t.Errorf("found %+v", hits)
	}
	stdout, _ = s.run(0, "search", "public.docs", "title 7", "--hybrid")
	s.has(stdout, "KEY", "SCORE", "DISTANCE", "TEXT")
	stdout, _ = s.run(0, "search", "public.docs", "title 7", "--hybrid", "--explain")
	s.has(stdout, "WITH embedsidecar_nearest", "Limit", "CREATE INDEX CONCURRENTLY")
	stdout, _ = s.run(0, "similar", "public.docs", "7", "-k", "2", "-o", "json")
	if hits := decoded[[]search.Hit](t, stdout); len(hits) != 2 || hits[0].Key == "7" || hits[1].Key == "7" {
		t.Errorf("similar to 7: %+v", hits)
	}
	s.run(9, "similar", "public.docs", "999")
	_, stderr := s.run(2, "similar", "public.docs", "seven")
	s.has(stderr, "does not fit its column")
	_, stderr = s.run(2, "search", "public.docs", "x", "--filter", "nope=1")
	s.has(stderr, `no column "nope"`)
	_, stderr = s.run(2, "search", "public.docs", "x", "--filter", "nope")
	s.has(stderr, "COLUMN=VALUE")
	_, stderr = s.run(2, "serve", "--http", "127.0.0.1:0")
	s.has(stderr, "--tokens-file", "--no-auth")
	_, stderr = s.run(2, "serve", "--http", "0.0.0.0:0", "--no-auth")
	s.has(stderr, "anybody who reaches that address")
	_, stderr = s.once(2, "--into-type", "circle")
	s.has(stderr, "sparsevec")
}
