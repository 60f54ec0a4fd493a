package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// In any history: during any time, no more rows are processed than the rates allow, plus the burst. Tokens may exceed
// the limit by those that one batch needs beyond its estimate. Bulk work is subject to its own rates and to the common
// ones.
func TestLimit_IsKeptOverAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string) float64 { return float64(rapid.SampledFrom([]int{0, 1, 7, 100, 5000}).Draw(t, name)) }
		all, bulk := Rates{rate("rows"), rate("tokens")}, Rates{rate("bulk rows"), rate("bulk tokens")}
		start := time.Unix(1000, 0)
		l, now := New(all, bulk, start), start
		var rows, tokens [2]float64 // of all work, of bulk work
		var beyond [2]float64       // tokens beyond the estimate
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			isBulk := rapid.Bool().Draw(t, "bulk")
			g := l.Take(now, isBulk, rapid.IntRange(1, 300).Draw(t, "most"))
			if g.Rows == 0 {
				if g.Wait <= 0 || g.Bound == "" {
					t.Fatalf("held back for %s by %q", g.Wait, g.Bound)
				}
				if later := l.Take(now.Add(g.Wait), isBulk, 1); later.Rows != 1 {
					t.Fatalf("none after the wait of %s for %s", g.Wait, g.Bound)
				} else {
					now = now.Add(g.Wait)
					g = later
				}
			}
			n := rapid.IntRange(0, g.Rows).Draw(t, "leased")
			guessed := g.tokens
			low := isBulk && rapid.Bool().Draw(t, "low")
			g.Leased(n, low)
			used := n * rapid.IntRange(0, 500).Draw(t, "tokens of a row")
			l.Spend(now, low, 0, used)
			g.Done()
			for i, counts := range []bool{true, low} {
				if counts {
					rows[i] += float64(n)
					tokens[i] += float64(used)
					beyond[i] = max(beyond[i], float64(used)-guessed)
				}
			}
			for i, r := range []Rates{all, bulk} {
				most := func(rate float64) float64 { return burst(rate) + rate*now.Sub(start).Seconds() + 1e-3 }
				if r.Rows > 0 && rows[i] > most(r.Rows) {
					t.Fatalf("%v rows in %s, at most %v", rows[i], now.Sub(start), most(r.Rows))
				}
				if r.Tokens > 0 && tokens[i] > most(r.Tokens)+max(beyond[i], 0)+500 {
					t.Fatalf("%v tokens in %s, at most %v", tokens[i], now.Sub(start), most(r.Tokens))
				}
			}
		}
	})
}

// Bulk work does not delay live work, neither with its own limit nor with the common one.
func TestLimit_LiveWorkDoesNotWaitForBulkWork(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := New(Rates{Rows: 10}, Rates{Rows: 2}, now)
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		g := l.Take(now, true, 256)
		g.Leased(g.Rows, true)
		g.Done()
		if !l.Allows(now, 3) {
			t.Fatal("no live work is allowed")
		}
	}
	if g := l.Take(now, true, 256); g.Rows != 0 || g.Bound != "backfill_rows_per_second" {
		t.Errorf("%d rows of bulk work, held back by %q", g.Rows, g.Bound)
	}
	if g := l.Take(now, false, 256); g.Rows < 5 || g.Bound != "rows_per_second" {
		t.Errorf("%d rows of live work, held back by %q", g.Rows, g.Bound)
	}
	if l.Allows(now, 3) {
		t.Error("the limit of all work does not hold")
	}
}

// A nil Limit allows everything.
func TestLimit_None(t *testing.T) {
	t.Parallel()
	l := New(Rates{}, Rates{}, time.Unix(1000, 0))
	if l != nil {
		t.Fatal("there is one")
	}
	g := l.Take(time.Unix(1000, 0), true, 256)
	g.Leased(256, true)
	g.Done()
	l.Spend(time.Unix(1000, 0), true, 5, 5)
	if one := l.Grant(1); g.Bound != "" || one.Rows != 1 || !l.Allows(time.Unix(1000, 0), 1<<20) {
		t.Error("something is held back")
	}
}
