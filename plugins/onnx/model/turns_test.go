package model

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// queueUp has calls wait in the order of left while the only place is taken, and returns the order in which they get it.
func queueUp(t *testing.T, left ...int) []int {
	t.Helper()
	turns := newTurns(1)
	if err := turns.take(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	var order []int
	var group sync.WaitGroup
	for came, tokens := range left {
		group.Go(func() {
			if err := turns.take(t.Context(), came, tokens); err != nil {
				t.Error(err)
			}
			order = append(order, came) // one at a time: there is one place
			turns.give()
		})
		synctest.Wait()
	}
	turns.give()
	group.Wait()
	return order
}

func TestTurns_SmallestFirstAndTheOldestEachFourthTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := queueUp(t, 900, 800, 10, 30, 20, 40, 700)
		if want := []int{2, 4, 3, 0, 5, 6, 1}; !slices.Equal(got, want) {
			t.Errorf("got order %v, want %v", got, want)
		}
	})
}

// Large calls among themselves have passed the oldest by as often as they may, and still a small one that comes now goes first.
func TestTurns_ASmallCallPaysForNoLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := queueUp(t, 9000, 1000, 2000, 3000, 4000, 5000)
		if want := []int{1, 2, 3, 0, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("got order %v, want %v", got, want)
		}
		turns := newTurns(1)
		if err := turns.take(t.Context(), 0, 9000); err != nil {
			t.Fatal(err)
		}
		turns.passed[0] = oldestEvery - 1
		order := make(chan int, 2)
		var group sync.WaitGroup
		for came, left := range []int{9000, 10} {
			group.Go(func() {
				if err := turns.take(t.Context(), came+1, left); err != nil {
					t.Error(err)
				}
				order <- left
				turns.give()
			})
			synctest.Wait()
		}
		turns.give()
		group.Wait()
		if first := <-order; first != 10 {
			t.Errorf("the call with %d left went first", first)
		}
	})
}

func TestTurns_EqualCallsInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, want := queueUp(t, 5, 5, 5), []int{0, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("got order %v, want %v", got, want)
		}
	})
}

// However many small calls come, a large one gets each fourth turn.
func TestTurns_LargeCallIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		var mu sync.Mutex
		large, all := 0, 0
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		caller := func(came, left int) {
			for turns.take(ctx, came, left) == nil {
				mu.Lock()
				all++
				if left > 1 {
					large++
				}
				if all == 400 {
					stop()
				}
				mu.Unlock()
				synctest.Wait() // until all others wait again
				turns.give()
			}
		}
		group.Go(func() { caller(0, 1_000_000) })
		for came := range 5 {
			group.Go(func() { caller(came+1, 1) })
		}
		group.Wait()
		if large < 75 || large > 110 { // it is not there for the turn after its own
			t.Errorf("the large call got %d of %d turns, want each fourth or fifth", large, all)
		}
	})
}

func TestTurns_CancelledCallLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		if err := turns.take(t.Context(), 0, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- turns.take(ctx, 1, 1) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if err := turns.take(ctx, 2, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled at once", err)
		}
		turns.give()
		if err := turns.take(t.Context(), 3, 1); err != nil {
			t.Errorf("the place is lost: %v", err)
		}
	})
}
