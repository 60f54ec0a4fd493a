package sidecar_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// oracle is the counter embedder as the workload's oracle knows it.
func oracle(text string) ([]float32, bool) {
	if vector.Empty(text) {
		return nil, true
	}
	return vector.Of(text, dims), false
}

func TestP1_RandomHistoriesConverge(t *testing.T) {
	t.Parallel()
	converge(t, workload.Shapes(dims), 1500)
}

func TestP1_RandomHistoriesOfChunksConverge(t *testing.T) {
	t.Parallel()
	converge(t, workload.Chunked(dims), 400)
}

// converge lets writers work on shapes and checks what comes of it, on every server.
func converge(t *testing.T, wanted []workload.Shape, steps int) {
	t.Helper()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		shapes, err := workload.Create(t.Context(), db, wanted)
		if err != nil {
			t.Fatal(err)
		}
		specs := make([]pipeline.Spec, len(shapes))
		for i, shape := range shapes {
			specs[i] = shape.Spec()
		}
		r := newRig(t, db, specs...)
		r.options = direct
		s, _ := r.start()
		run, err := workload.Start(t.Context(), db.URL(testenv.Owner), shapes, workload.Options{
			Seed: 7, Writers: 4,
			Steps: steps,
		})
		if err != nil {
			t.Fatal(err)
		}
		done, err := run.Wait()
		if err != nil {
			t.Fatal(err)
		}
		t.Log(done)
		r.settle()
		found := workload.Settle(t, db, shapes, oracle, waitTimeout)
		if !found.OK() {
			t.Errorf("%s", found)
		}
		r.verify()
		stream := s.Stream()
		t.Logf("changes %d, tasks %d, joined %d, dropped %d, own writes %d, texts %d", stream.Changes.Load(),
			stream.Made.Load(),
			stream.Joined.Load(), stream.Dropped.Load(), stream.OwnWrites.Load(), r.embedder.sent())
	})
}
