package model

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCut_CoversEveryTextWithinTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(3, 300), 0, 200).Draw(t, "lengths")
		budget := rapid.IntRange(1, 600).Draw(t, "budget")
		slices.Sort(lengths)
		pieces := cut(lengths, budget)
		end := len(lengths)
		for _, p := range pieces { // longest first
			if p.end != end || p.first >= p.end {
				t.Fatalf("pieces %v do not follow each other", pieces)
			}
			if p.width != lengths[p.end-1] {
				t.Fatalf("piece %v: its longest text has %d tokens", p, lengths[p.end-1])
			}
			if p.end-p.first > 1 && (p.end-p.first)*p.width > budget {
				t.Fatalf("piece %v is over the budget of %d", p, budget)
			}
			end = p.first
		}
		if end != 0 {
			t.Fatalf("%d texts are in no piece", end)
		}
	})
}

// No other division of a few texts costs less.
func TestCut_IsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(3, 60), 1, 9).Draw(t, "lengths")
		const budget = 128
		slices.Sort(lengths)
		got := 0
		for _, p := range cut(lengths, budget) {
			got += p.cost()
		}
		for mask := range 1 << (len(lengths) - 1) { // bit i: a cut after text i
			cost, first, allowed := 0, 0, true
			for i := range lengths {
				if i == len(lengths)-1 || mask&(1<<i) != 0 {
					p := piece{first, i + 1, lengths[i]}
					allowed = allowed && (p.end-p.first == 1 || (p.end-p.first)*p.width <= budget)
					cost, first = cost+p.cost(), i+1
				}
			}
			if allowed && cost < got {
				t.Fatalf("%v costs %d, cuts %b cost %d", lengths, got, mask, cost)
			}
		}
	})
}

// A small call is split among the places, but not into tiny runs.
func TestBudget_GivesEveryPlaceSomething(t *testing.T) {
	few, many := slices.Repeat([]int{20}, 12), slices.Repeat([]int{20}, 500)
	for _, c := range []struct {
		lengths      []int
		most, places int
		want         int // pieces
	}{
		{few, 512, 1, 1},
		{few, 512, 2, 2},
		{few, 512, 3, 3},
		{few, 512, 100, 4}, // of 64 tokens: three texts
		{few, 1, 4, 12},    // each by itself
		{many, 512, 2, 20}, // of 512 tokens
		{[]int{300}, 512, 8, 1},
		{nil, 512, 8, 0},
	} {
		if got := len(cut(c.lengths, budget(c.lengths, c.most, c.places))); got != c.want {
			t.Errorf("%d texts, at most %d tokens, %d places: got %d pieces, want %d", len(c.lengths), c.most, c.places, got,
				c.want)
		}
	}
}

// Realistic texts, mostly short and a few long, in calls of 64: at most 3 % of the tokens are padding.
func TestCut_PadsLittle(t *testing.T) {
	lengths := make([]int, 64)
	for i := range lengths {
		lengths[i] = 5 + i*i/17 // 5 to 238
	}
	tokens, padded := 0, 0
	for _, p := range cut(lengths, pieceTokens) {
		padded += (p.end - p.first) * p.width
	}
	for _, length := range lengths {
		tokens += length
	}
	if waste := float64(padded-tokens) / float64(tokens); waste > 0.03 {
		t.Errorf("%.1f %% of the tokens are padding, want at most 3 %%", 100*waste)
	}
}
