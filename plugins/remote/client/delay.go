package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter reads when a server wants to be asked again: Retry-After in seconds or as a date, or the form in
// milliseconds that some use beside it. 0: it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil && ms > 0 && ms < 1e9 {
		return bounded(time.Duration(ms * float64(time.Millisecond)))
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if seconds > 0 && seconds < 1e9 {
			return bounded(time.Duration(seconds * float64(time.Second)))
		}
		return 0
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	// The server's own clock may be off; what it calls now is in Date.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return bounded(at.Sub(now))
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), maxAsked) }
