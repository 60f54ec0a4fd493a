package model

// A piece is the input of one run: consecutive texts in the order of length, padded to the longest.
type piece struct {
	first, end int // of the sorted texts
	width      int // tokens of the longest
}

// cost is the run time of a piece, in tokens; see cut.
func (p piece) cost() int { return (p.end-p.first)*p.width + runOverhead }

const (
	// pieceTokens bounds a piece. It was faster than 1024, 2048 and 4096, because it has less padding, and small calls
	// wait for shorter pieces.
	pieceTokens = 512
	// acceleratorTokens is the bound for accelerators, which small pieces would leave idle.
	acceleratorTokens = 16384
	// runOverhead is the fixed cost of a run, in tokens.
	runOverhead = 10
	// smallestPiece is the least size of a piece when a call is split for free places.
	smallestPiece = 64
	// smallCall is the size limit of a call that runs although all places are taken: one long text, or a few short
	// ones.
	smallCall = 256 + runOverhead
)

// budget returns the token limit of a piece: at most most, and less in a small call, so that all places are used.
func budget(lengths []int, most, places int) int {
	if places == 1 || len(lengths) < 2 {
		return most
	}
	tokens := 0
	for _, length := range lengths {
		tokens += length
	}
	// Texts are not divided, so a place may exceed its share by the longest text.
	return min(most, max(smallestPiece, tokens/places+lengths[len(lengths)-1]))
}

// cut divides texts into pieces with the least total cost: padding a text to a longer one costs tokens, and a separate
// run costs an overhead. lengths are sorted, shortest first; none is 0. No piece has more than budget tokens, except a
// single longer text.
func cut(lengths []int, budget int) []piece {
	// best[i] is the least cost of the first i texts, and from[i] the start of their last piece. The inner loop ends at
	// the budget, so this takes len(lengths)*budget/length steps.
	best, from := make([]int, len(lengths)+1), make([]int, len(lengths)+1)
	for i := 1; i <= len(lengths); i++ {
		width := lengths[i-1]
		for j := i - 1; j >= 0; j-- {
			p := piece{j, i, width}
			if j < i-1 && (i-j)*width > budget {
				break
			}
			if cost := best[j] + p.cost(); j == i-1 || cost < best[i] {
				best[i], from[i] = cost, j
			}
		}
	}
	var pieces []piece
	for end := len(lengths); end > 0; end = from[end] {
		pieces = append(pieces, piece{from[end], end, lengths[end-1]})
	}
	return pieces // longest first
}
