package pipeline

import "strings"

// Nearest returns those of names that a person who wrote wrong most likely meant, at most three.
func Nearest(wrong string, names []string) []string {
	const most = 3
	var best []string
	least := max(2, len(wrong)/3)
	for _, name := range names {
		d := distance(strings.ToLower(wrong), strings.ToLower(name))
		switch {
		case d > least, d >= max(len(wrong), len(name)): // nothing of it is the same
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

// distance counts the letters to add, drop or change to come from a to b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		previous := row[0]
		row[0] = i + 1
		for j := range y {
			cost := previous
			if x[i] != y[j] {
				cost++
			}
			previous = row[j+1]
			row[j+1] = min(cost, row[j]+1, previous+1)
		}
	}
	return row[len(y)]
}

// DidYouMean makes a hint of names that are close to a wrong one, or says what there is.
func DidYouMean(wrong string, names []string) []string {
	if best := Nearest(wrong, names); len(best) > 0 {
		return []string{"did you mean " + strings.Join(best, " or ") + "?"}
	}
	return ThereAre(names)
}

// ThereAre makes a hint of all names, or of the first if there are many.
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
