package chunk

import "unicode"

// perToken is how many ASCII letters and digits of a word count as one token.
const perToken = 4

// Estimate returns the estimated ends of the tokens of a text, for models without a known tokenizer. It tends to
// overestimate: it counts a token for every four ASCII letters or digits of a word, and for each other character.
func Estimate(text string) []int {
	ends := make([]int, 0, len(text)/perToken+1)
	run := 0 // letters since the last end
	for i, r := range text {
		plain := r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
		if run > 0 && (!plain || run == perToken) {
			ends, run = append(ends, i), 0
		}
		switch {
		case plain:
			run++
		case !unicode.IsSpace(r):
			ends = append(ends, i+len(string(r)))
		}
	}
	if run > 0 {
		ends = append(ends, len(text))
	}
	return ends
}
