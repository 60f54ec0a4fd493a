package embed

import (
	"sync"
	"time"
)

// size limits the texts of a call after the embedder ran out of resources: it may never have enough for more.
type size struct {
	mu     sync.Mutex
	most   int // texts in a call; 0: no limit
	failed int // bytes of text in the last call that failed so
	times  int // calls that failed so since one with as many bytes succeeded
	at     time.Time
}

// A rate limit looks the same, and smaller calls make it worse: so only the third failure in a row lowers the limit. It
// rises again after a while.
const (
	failsOften = 3
	scarce     = time.Minute
)

// fitting returns how many of some texts the next call may have.
func (z *size) fitting(texts int) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.most > 0 {
		return min(texts, z.most)
	}
	return texts
}

// limited reports whether the embedder ran out of resources lately.
func (z *size) limited() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.most > 0
}

func (z *size) note(texts []string, err error) {
	bytes := 0
	for _, text := range texts {
		bytes += len(text)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	switch class, _ := Classify(err); {
	case err == nil:
		if bytes >= z.failed {
			z.times = 0
		}
		if len(texts) == z.most && time.Since(z.at) > scarce {
			z.most *= 2
		}
	case class == Resource && len(texts) > 1:
		z.failed = bytes
		if z.times++; z.times >= failsOften {
			z.most, z.times, z.at = len(texts)/2, 0, time.Now()
		}
	}
}
