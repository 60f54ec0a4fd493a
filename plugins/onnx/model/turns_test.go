package model

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// queueUp queues calls with these remaining tokens while the only place is taken, and returns the order in which they
// get it.
func queueUp(t *testing.T, left ...int) []int {
	t.Helper()
	turns := newTurns(1, 0)
	first, err := turns.take(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	var group sync.WaitGroup
	for came, tokens := range left {
		group.Go(func() {
			mine, err := turns.take(t.Context(), came, tokens)
			if err != nil {
				t.Error(err)
			}
			order = append(order, came) // one at a time, because there is one place
			turns.give(mine)
		})
		synctest.Wait()
	}
	turns.give(first)
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

// Even if large calls have passed the oldest call as often as allowed, a new small call goes first.
func TestTurns_ASmallCallPaysForNoLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := queueUp(t, 9000, 1000, 2000, 3000, 4000, 5000)
		if want := []int{1, 2, 3, 0, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("got order %v, want %v", got, want)
		}
		turns := newTurns(1, 0)
		first := mustTake(t, turns, 0, 9000)
		turns.passed[0] = oldestEvery - 1
		order := make(chan int, 2)
		var group sync.WaitGroup
		for came, left := range []int{9000, 10} {
			group.Go(func() {
				mine, err := turns.take(t.Context(), came+1, left)
				if err != nil {
					t.Error(err)
				}
				order <- left
				turns.give(mine)
			})
			synctest.Wait()
		}
		turns.give(first)
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

// A large call gets every fourth turn, under any number of small calls.
func TestTurns_LargeCallIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1, 0)
		var mu sync.Mutex
		large, all := 0, 0
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		caller := func(came, left int) {
			for {
				mine, err := turns.take(ctx, came, left)
				if err != nil {
					return
				}
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
				turns.give(mine)
			}
		}
		group.Go(func() { caller(0, 1_000_000) })
		for came := range 5 {
			group.Go(func() { caller(came+1, 1) })
		}
		group.Wait()
		if large < 75 || large > 110 { // it does not wait for the turn after its own
			t.Errorf("the large call got %d of %d turns, want each fourth or fifth", large, all)
		}
	})
}

func TestTurns_CancelledCallLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1, 0)
		first := mustTake(t, turns, 0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := turns.take(ctx, 1, 1)
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if _, err := turns.take(ctx, 2, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled at once", err)
		}
		turns.give(first)
		if next := mustTake(t, turns, 3, 1); !next.alone {
			t.Error("the place is lost: the next call is not alone")
		}
	})
}

func mustTake(t *testing.T, turns *turns, came, left int) turn {
	t.Helper()
	mine, err := turns.take(t.Context(), came, left)
	if err != nil {
		t.Fatalf("call %d: %v", came, err)
	}
	return mine
}

// One additional small call runs when all places are taken; the next one waits, and so does a large one.
func TestTurns_SmallCallRunsBesideThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2, 100)
		first, second := mustTake(t, turns, 0, 1000), mustTake(t, turns, 1, 1000)
		got := make(chan int)
		wait := func(came, left int) {
			go func() {
				mine, err := turns.take(t.Context(), came, left)
				if err != nil {
					t.Error(err)
				}
				got <- came
				turns.give(mine)
			}()
			synctest.Wait()
		}
		wait(2, 101)
		beside := mustTake(t, turns, 3, 100) // does not wait
		wait(4, 100)
		select {
		case came := <-got:
			t.Fatalf("call %d runs though all places are taken", came)
		default:
		}
		turns.give(beside)
		if came := <-got; came != 4 {
			t.Errorf("the place beside the others went to call %d, want the small one, 4", came)
		}
		turns.give(first)
		if came := <-got; came != 2 {
			t.Errorf("the place went to call %d, want 2", came)
		}
		turns.give(second)
	})
}

// A turn reports whether its run is the only one.
func TestTurns_TellWhoIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2, 100)
		for came := range 8 { // also in the oldest call's turn
			mine := mustTake(t, turns, came, 1000)
			if !mine.alone {
				t.Fatalf("call %d is not alone", came)
			}
			turns.give(mine)
		}
		first, second := mustTake(t, turns, 8, 1000), mustTake(t, turns, 9, 1000)
		beside := mustTake(t, turns, 10, 1)
		if second.alone || beside.alone {
			t.Errorf("second alone: %t, beside the places alone: %t, want neither", second.alone, beside.alone)
		}
		turns.give(first)
		turns.give(second)
		if next := mustTake(t, turns, 11, 1000); next.alone {
			t.Error("alone, though somebody runs beside the places")
		}
	})
}
