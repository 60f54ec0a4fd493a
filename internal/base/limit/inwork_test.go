package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// In any history of Enter, TryEnter, cancellation and Leave: no more rows are in progress than the current limit
// allows, no place stays unused while a waiter could have it, and the highest rank enters first, within a rank in the
// order of arrival.
func TestInWork_IsKeptOverAnyHistory(t *testing.T) { //nolint:funlen // one model
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			kind             string
			most, rank, rows int
			who              int
		}
		most, problem := rapid.IntRange(0, 3).Draw(rt, "most"), ""
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				rapid.SampledFrom([]string{"enter", "try", "leave", "give up", "set"}).Draw(rt, "step"),
				rapid.IntRange(0, 3).Draw(rt, "most"), rapid.IntRange(-1, 3).Draw(rt, "rank"),
				rapid.IntRange(1, 4).Draw(rt, "rows"), rapid.IntRange(0, 99).Draw(rt, "who"),
			}
		}), 10, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) { // rapid can neither draw nor shrink inside
			w := NewInWork(most)
			type guest struct {
				rank, number int
				cancel       context.CancelFunc
				places       int // that were granted
				err          error
				last, over   bool
			}
			var waiting, inside []*guest
			number := 0
			fail := func(format string, args ...any) {
				if problem == "" {
					problem = fmt.Sprintf(format, args...)
				}
			}
			rows := func() (n int) {
				for _, g := range inside {
					n += g.places
				}
				return n
			}
			settle := func() { // removes those that were granted from the waiters
				synctest.Wait()
				let := slices.DeleteFunc(slices.Clone(waiting), func(g *guest) bool { return !g.over || g.err != nil })
				waiting = slices.DeleteFunc(waiting, func(g *guest) bool { return g.over })
				for _, g := range let {
					if g.places < 1 {
						fail("let in without a place")
					}
					if n := rows() + g.places; len(let) == 1 && (g.last != (most > 1 && n == most) || g.last && g.rank <= 0) {
						fail("%d of %d in work, and one of rank %d has the last place: %t", n, most, g.rank, g.last)
					}
					for _, other := range waiting {
						if other.rank > g.rank || other.rank == g.rank && other.number < g.number {
							fail("%d of rank %d was let in before %d of rank %d", g.number, g.rank, other.number, other.rank)
						}
					}
				}
				inside = append(inside, let...)
				if n := rows(); len(let) > 0 && most > 0 && n > most {
					fail("%d rows in work, at most %d", n, most)
				}
				live := slices.ContainsFunc(waiting, func(g *guest) bool { return g.rank > 0 })
				if room := most - rows(); len(waiting) > 0 && (most == 0 || room > 1 || room == 1 && (live || most == 1)) {
					fail("%d wait, and there is room: %d of %d", len(waiting), rows(), most)
				}
			}
			for _, do := range steps {
				if problem != "" {
					break
				}
				switch do.kind {
				case "enter":
					ctx, cancel := context.WithCancel(t.Context())
					number++
					g := &guest{rank: do.rank, number: number, cancel: cancel}
					waiting = append(waiting, g)
					go func() {
						g.places, g.last, g.err = w.Enter(ctx, func() int { return g.rank }, do.rows)
						g.over = true
					}()
				case "try":
					n := do.rows
					room := most == 0 || rows()+n <= most
					if w.Free(n) != room || w.TryEnter(n) != room {
						fail("%d more: want %t with %d of %d and %d who wait", n, room, rows(), most, len(waiting))
					}
					if room {
						inside = append(inside, &guest{places: n, cancel: func() {}})
					}
				case "leave":
					if len(inside) > 0 {
						at := do.who % len(inside)
						w.Leave(inside[at].places)
						inside[at].cancel()
						inside = slices.Delete(inside, at, at+1)
					}
				case "give up":
					if len(waiting) > 0 {
						g := waiting[do.who%len(waiting)]
						g.cancel()
						synctest.Wait()
						if !errors.Is(g.err, context.Canceled) {
							fail("gave up: %v", g.err)
						}
					}
				case "set":
					most = do.most
					w.Set(most)
				}
				settle()
			}
			most = 0 // no limit: lets all in
			w.Set(most)
			settle()
			for _, g := range inside {
				g.cancel()
			}
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// An InWork may have no limit, and abandoned work counts until it is done.
func TestInWork_NoneAndGivenUp(t *testing.T) {
	t.Parallel()
	none := NewInWork(0)
	n, last, err := none.Enter(t.Context(), nil, 7)
	if n != 7 || last || err != nil || !none.TryEnter(1<<20) || !none.Free(1) || none.Sequential() {
		t.Error("none bounds something")
	}
	none.Add(1)
	none.Leave(1)
	w := NewInWork(1)
	if !w.Sequential() || !w.TryEnter(1) {
		t.Fatal("not one")
	}
	w.Add(1)
	w.Leave(1)
	if w.TryEnter(1) {
		t.Error("there is room while the embedder is at it")
	}
	if w.Leave(1); !w.TryEnter(1) {
		t.Error("there is no room")
	}
}
