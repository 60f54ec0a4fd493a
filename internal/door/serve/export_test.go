package serve

import (
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// Handler returns what the server answers, without a listener.
func Handler(o Options) http.Handler { return gate.New(o.gate()) }
