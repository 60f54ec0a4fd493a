// Package spelling suggests existing names for misspelled ones.
package spelling

import "strings"

// Nearest returns the names that were most likely meant by wrong, at most three, the likeliest first: those that begin
// with it, or else those with the smallest edit distance. It ignores case and quotes.
func Nearest(wrong string, names []string) []string {
	const most, abbreviated = 3, 3
	plain := func(name string) string { return strings.ReplaceAll(strings.ToLower(name), `"`, "") }
	word := plain(wrong)
	var best []string
	least := (len(word) + 1) / 3
	for _, name := range names {
		d := distance(word, plain(name))
		if len(word) >= abbreviated && strings.HasPrefix(plain(name), word) {
			d = -1
		}
		switch {
		case d > least, word == "", d >= max(len(word), len(name)): // nothing in common
			continue
		case d < least:
			best, least = nil, d
		}
		if len(best) < most {
			best = append(best, name)
		}
	}
	return best
}

// One returns the most likely name, or "" if none is similar.
func One(wrong string, names []string) string {
	if best := Nearest(wrong, names); len(best) > 0 {
		return best[0]
	}
	return ""
}

// DidYouMean returns a hint with similar names, or with the existing ones.
func DidYouMean(wrong string, names []string) []string {
	best := Nearest(wrong, names)
	if len(best) == 0 {
		return ThereAre(names)
	}
	hints := []string{Question(best...)}
	if said := hints[0]; strings.Contains(said, "$$") || strings.Contains(said, "${") {
		hints = append(hints, "in a configuration file, $$ stands for one $: write each $ of a name as $$")
	}
	return hints
}

// Question asks whether one of some names was meant.
func Question(names ...string) string { return "did you mean " + strings.Join(names, " or ") + "?" }

// ThereAre returns a hint with all names, or with the first ones if there are many.
func ThereAre(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	const few = 20
	if len(names) > few {
		names = append(append([]string(nil), names[:few]...), "...")
	}
	return []string{"there are: " + strings.Join(names, ", ")}
}

// distance counts the characters to insert, remove, replace or swap with a neighbor (optimal string alignment).
func distance(x, y string) int {
	a, b := []rune(x), []rune(y)
	const limit = 64
	if len(a) > limit || len(b) > limit {
		return limit
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		next[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
