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
	converge(t, workload.Shapes(dims), transactions(t)*4/5)
}

func TestP1_RandomHistoriesOfChunksConverge(t *testing.T) {
	t.Parallel()
	converge(t, workload.Chunked(dims), transactions(t)/5)
}

// perRound is how many transactions a database is given before all of its rows are looked at.
const perRound = 20_000

// transactions is how many there are on each server, of both tests together: a transaction has 1.75 steps on average,
// and EMBEDSIDECAR_STEPS, else 13,000, is how many steps all of them have.
func transactions(t *testing.T) int {
	t.Helper()
	return testenv.FromEnvironment(t, "EMBEDSIDECAR_STEPS", 13_000) * 4 / 7 / len(testenv.Majors(t))
}

// converge lets writers work on shapes and checks what comes of it, on every server: in rounds, each with a database
// and a history of its own. EMBEDSIDECAR_SEED is the first one's seed.
func converge(t *testing.T, wanted []workload.Shape, transactions int) {
	t.Helper()
	seed := testenv.FromEnvironment(t, "EMBEDSIDECAR_SEED", 7)
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		for round := range (transactions + perRound - 1) / perRound {
			t.Run(fmt.Sprintf("seed%d", seed+round), func(t *testing.T) {
				history(t, major, wanted, min(transactions-round*perRound, perRound), seed+round)
			})
		}
	})
}

// history is one round.
func history(t *testing.T, major int, wanted []workload.Shape, transactions, seed int) {
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
		Seed: uint64(seed), Writers: writers, Transactions: (transactions + writers - 1) / writers,
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
