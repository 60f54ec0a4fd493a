package model

// A piece is what one run of the network takes: texts next to each other in the order of length, padded to the longest.
type piece struct {
	first, end int // of the sorted texts
	width      int // tokens of the longest
}

// cost is how long a piece runs, in tokens; see cut.
func (p piece) cost() int { return (p.end-p.first)*p.width + runOverhead }

const (
	// pieceTokens bounds a piece. Of 512, 1024, 2048 and 4096 it was the fastest, because less of it is padding, and it
	// keeps what a small call waits for short.
	pieceTokens = 512
	// acceleratorTokens is the same for other processors than the CPU, which small pieces would leave idle.
	acceleratorTokens = 16384
	// runOverhead is what a run costs besides its tokens, as a number of tokens that take as long.
	runOverhead = 10
	// smallestPiece is worth a run of its own when there are places for more of them.
	smallestPiece = 64
	// smallCall bounds what runs at once though all places are taken: a text as long as most models take, or a few short
	// ones.
	smallCall = 256 + runOverhead
)

// budget returns how many tokens a piece may have: at most most, and less in a small call, so that all places get
// something to do.
func budget(lengths []int, most, places int) int {
	if places == 1 || len(lengths) < 2 {
		return most
	}
	tokens := 0
	for _, length := range lengths {
		tokens += length
	}
	// Texts are not divided: the longest may be what a place has more than its share.
	return min(most, max(smallestPiece, tokens/places+lengths[len(lengths)-1]))
}

// cut divides texts into the pieces that take the least time together: padding a text to a longer neighbour's length
// costs tokens, and running it apart costs an overhead. lengths are sorted, shortest first; none is 0. No piece holds
// more than budget tokens, except for a single text that is longer.
func cut(lengths []int, budget int) []piece {
	// best[i] is the least cost of the first i texts, and from[i] where their last piece begins. Looking back ends at the
	// budget, so this takes len(lengths)*budget/length steps.
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
