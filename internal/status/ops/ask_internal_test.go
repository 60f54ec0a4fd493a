package ops

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

func TestAskedAt(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":7471": "127.0.0.1:7471", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "127.0.0.2:1": "127.0.0.2:1",
		"[fe80::1]:1": "[fe80::1]:1", "localhost:1": "localhost:1",
	} {
		if got, err := askedAt(listen); err != nil || got != want {
			t.Errorf("askedAt(%q) = %q, %v, want %q", listen, got, err, want)
		}
	}
	for _, bad := range []string{"", "7471"} {
		if got, err := askedAt(bad); problem.Of(err) != problem.Usage {
			t.Errorf("askedAt(%q) = %q, %v", bad, got, err)
		}
	}
}
