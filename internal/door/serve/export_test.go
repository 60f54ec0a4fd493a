package serve

import (
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// Handler returns the server's handler without a listener.
func Handler(o Options) http.Handler { return gate.New(o.gate()) }
