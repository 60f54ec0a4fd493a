package config

import (
	"slices"
	"strings"
)

// Nearest returns the candidate that a misspelt word most likely meant, or "" when none is near.
func Nearest(word string, candidates []string) string {
	if len(word) >= 3 {
		for _, candidate := range candidates {
			if strings.HasPrefix(candidate, strings.ToLower(word)) {
				return candidate
			}
		}
	}
	best, bestDistance := "", (len(word)+1)/3
	for _, candidate := range candidates {
		if d := distance(strings.ToLower(word), candidate); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with a neighbour (optimal string alignment).
func distance(a, b string) int {
	const limit = 64
	if len(a) > limit || len(b) > limit {
		return limit
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
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

// nearestFold is Nearest for candidates that have capital letters.
func nearestFold(word string, candidates []string) string {
	lower := make([]string, len(candidates))
	for i, c := range candidates {
		lower[i] = strings.ToLower(c)
	}
	if at := slices.Index(lower, Nearest(word, lower)); at >= 0 {
		return candidates[at]
	}
	return ""
}
