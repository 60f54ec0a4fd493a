package remotetest

import (
	"net/http"
)

// Drop ends the connection without an answer.
func Drop(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// Stall blocks until the client has gone.
func Stall(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Trickle sends the start of a valid answer and never ends.
func Trickle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"data":[`))
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	<-r.Context().Done()
}

// Flood sends endless white space.
func Flood(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	line := make([]byte, 64<<10)
	for i := range line {
		line[i] = ' '
	}
	for r.Context().Err() == nil {
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}

// Page answers with an HTML page, as gateways do.
func Page(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<html><body><h1>Something went wrong</h1></body></html>"))
	}
}

// Send answers with a fixed body.
func Send(status int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
