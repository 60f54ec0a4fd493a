package admin

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// How much of what is there for all one token may have at a time.
const (
	ownRequests = 16 // under way, those that watch aside
	ownWatchers = 8
)

// shares counts what each token has at a time, so that none takes all that is there.
type shares struct {
	most int

	mu sync.Mutex
	of map[string]int // by name of the token
}

func newShares(most int) *shares { return &shares{most: most, of: map[string]int{}} }

// take takes one of a token's share, or says that it has all of it. giveBack ends that.
func (s *shares) take(name string) *Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name] >= s.most {
		return &Problem{
			Status: http.StatusTooManyRequests, Reason: "rate", after: time.Second,
			Detail: fmt.Sprintf("this token has %d such requests under way, and more it may not", s.most),
		}
	}
	s.of[name]++
	return nil
}

func (s *shares) giveBack(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name]--; s.of[name] <= 0 {
		delete(s.of, name)
	}
}
