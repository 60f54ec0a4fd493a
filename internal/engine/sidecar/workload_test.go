package sidecar_test

import (
	"fmt"
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
	converge(t, workload.Shapes(dims), steps(t))
}

func TestP1_RandomHistoriesOfChunksConverge(t *testing.T) {
	t.Parallel()
	converge(t, workload.Chunked(dims), steps(t)/4)
}

// roundSteps is how many transactions a database is given before all of its rows are looked at.
const roundSteps = 20_000

// steps is how many transactions there are on each server, of EMBEDSIDECAR_STEPS in all, else 6,000.
func steps(t *testing.T) int {
	t.Helper()
	return testenv.FromEnvironment(t, "EMBEDSIDECAR_STEPS", 6000) / len(testenv.Majors(t))
}

// converge lets writers work on shapes and checks what comes of it, on every server: in rounds, each with a database
// and a history of its own. EMBEDSIDECAR_SEED is the first one's seed.
func converge(t *testing.T, wanted []workload.Shape, steps int) {
	t.Helper()
	seed := testenv.FromEnvironment(t, "EMBEDSIDECAR_SEED", 7)
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		for round := range (steps + roundSteps - 1) / roundSteps {
			t.Run(fmt.Sprintf("seed%d", seed+round), func(t *testing.T) {
				history(t, major, wanted, min(steps-round*roundSteps, roundSteps), seed+round)
			})
		}
	})
}

// history is one round.
func history(t *testing.T, major int, wanted []workload.Shape, steps, seed int) {
	t.Helper()
	const writers = 4
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
		Seed: uint64(seed), Writers: writers, Steps: (steps + writers - 1) / writers,
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
}
