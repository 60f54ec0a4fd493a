package vector

import "unicode"

// TokenEnds returns the offset in bytes after each token of a text, as the fake embedder counts them: runs of what is
// not white space.
func TokenEnds(text string) []int {
	var ends []int
	word := false
	for i, r := range text {
		if space := unicode.IsSpace(r); space && word {
			ends = append(ends, i)
			word = false
		} else if !space {
			word = true
		}
	}
	if word {
		ends = append(ends, len(text))
	}
	return ends
}
