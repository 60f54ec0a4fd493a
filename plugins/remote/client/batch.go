package client

import (
	"sync"

	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
)

// tokens is an upper guess of how many tokens a text has: three and a half bytes to a token in ASCII, a token for
// each other sign, as with most tokenizers and languages. What a guess gets wrong the server says, and the request is
// halved.
func tokens(text string) int {
	ascii, other := 0, 0
	for i := range len(text) {
		switch b := text[i]; {
		case b < 0x80:
			ascii++
		case b >= 0xC0:
			other++
		}
	}
	return ascii*2/7 + other + 2
}

// sizes are the limits of one request. They sink when a server proves to take less.
type sizes struct {
	mu     sync.Mutex
	limits dialect.Limits
}

func (s *sizes) get() dialect.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// learn notes how many texts a server takes, as it has said itself.
func (s *sizes) learn(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.Texts = min(s.limits.Texts, most)
}

// tooMuch notes that a request of so many texts and bytes was too much though its halves were not.
func (s *sizes) tooMuch(texts, bytes int, byCount bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if byCount {
		s.limits.Texts = min(s.limits.Texts, max(1, (texts+1)/2))
		return
	}
	s.limits.Bytes = min(s.limits.Bytes, max(1, (bytes+1)/2))
}

// batches groups the places of texts into requests. A text that is too big for any stands alone, and the server
// decides. beside are tokens that are read with each text.
func batches(texts []string, places []int, beside int, limits dialect.Limits) [][]int {
	var (
		all        [][]int
		now        []int
		sum, bytes int
	)
	for _, i := range places {
		t, b := tokens(texts[i])+beside, len(texts[i])
		if len(now) > 0 && (len(now) >= limits.Texts || sum+t > limits.Tokens || bytes+b > limits.Bytes) {
			all, now, sum, bytes = append(all, now), nil, 0, 0
		}
		now, sum, bytes = append(now, i), sum+t, bytes+b
	}
	if len(now) > 0 {
		all = append(all, now)
	}
	return all
}
