package main

import (
	"fmt"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestInit_TellsTheSizeOnDisk: the estimate of a dry run matches the size once everything is embedded and indexed.
func TestInit_TellsTheSizeOnDisk(t *testing.T) {
	t.Parallel()
	const chunks = "--set=pipelines[0].chunking."
	for name, test := range map[string]struct {
		dims, rows, sentences int
		flags                 []string
	}{
		"whole texts": {384, 500, 3, []string{"--index", "hnsw"}},
		"ten chunks":  {384, 150, 80, []string{"--index", "hnsw", chunks + "strategy=sentences", chunks + "tokens=128"}},
		"large chunks, no index": {384, 150, 80, []string{
			chunks + "strategy=tokens", chunks + "tokens=250", chunks + "overlap=40",
		}},
		"wide chunks": {768, 100, 80, []string{"--index", "hnsw", chunks + "strategy=sentences", chunks + "tokens=128"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 0)
			s.set(fmt.Sprintf("EMBEDSIDECAR_PLUGIN_DIMS=%d", test.dims))
			s.db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, (SELECT string_agg(format('The %s of number %s is kept by the %s, and %s sees it. ',
				(ARRAY['letter','order','answer','question','parcel'])[1 + (i * n) % 5], i * 31 + n,
				substr(md5(i || ' ' || n), 1, 9),
				(ARRAY['nobody','everyone','the team','a customer'])[1 + (i + n) % 4]), '') FROM generate_series(1, $2::int) AS n)
				FROM generate_series(1, $1::int) AS i`, test.rows, test.sentences)
			pipeline := []string{"--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding"}
			stdout, _ := s.run(0, append(append([]string{"init", "--dry-run", "-o", "json"}, pipeline...), test.flags...)...)
			told := decoded[struct{ Estimates []estimate.Estimate }](t, stdout).Estimates[0].DiskBytes
			s.run(0, append(append([]string{"run", "--once"}, pipeline...), test.flags...)...)
			stored := testenv.Value[int64](s.db, "SELECT pg_total_relation_size('docs_embedding') + pg_total_relation_size('embedsidecar.ledger')")
			vectors := testenv.Value[int64](s.db, "SELECT count(*) FROM docs_embedding")
			t.Logf("told %d, real %d, %.2f; %d vectors, %d bytes each", told, stored, float64(told)/float64(stored), vectors,
				stored/vectors)
			if ratio := float64(told) / float64(stored); ratio < 0.75 || ratio > 1.3 {
				t.Errorf("%d bytes were told, and %d it is, %.2f times as many", told, stored, 1/ratio)
			}
		})
	}
}
