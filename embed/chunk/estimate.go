package chunk

import "unicode"

// perToken is how many ASCII letters and digits of one word are counted as a token.
const perToken = 4

// Estimate returns about where the tokens of a text end, for models whose tokenizer is not at hand. It rather counts
// too many than too few: a token for each four letters or digits of a word, for each other sign, and for each letter
// outside ASCII.
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
