package admin

import (
	"fmt"
	"net/http"
	"time"
)

// How much of what is there for all one client may have at a time.
const (
	ownRequests = 16 // of a token, under way, those that watch aside
	ownWatchers = 8  // of a token
	strangers   = 16 // requests of all who have shown no token: places of their own
	ofAddress   = 8  // of them, from one address
	// A stranger shows a token, and no more: his body is small and comes at once.
	strangersBody = 8 << 10
	strangersTime = 5 * time.Second
)

// full is the answer for a client that has its share.
func full(most int) *Problem {
	return &Problem{
		Status: http.StatusTooManyRequests, Reason: "rate", after: time.Second,
		Detail: fmt.Sprintf("this client already has %d such requests in progress, the most allowed", most),
	}
}

// often is the answer for a client that asks too often.
func often(rate int) *Problem {
	return &Problem{
		Status: http.StatusTooManyRequests, Reason: "rate", after: time.Second,
		Detail: fmt.Sprintf("this client sends more than %d requests per second", rate),
	}
}
