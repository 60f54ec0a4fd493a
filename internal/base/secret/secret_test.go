package secret_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/secret"
)

func TestVariable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]bool{ // a secret, the file of one
		"API_KEY": {true, false}, "api_keys": {true, false}, "EMBEDSIDECAR_PLUGIN_TOY_TOKEN": {true, false},
		"PGPASSWORD":      {true, false},
		"AWS_CREDENTIALS": {true, false}, "HTTP_AUTHORIZATION": {true, false}, "ACCESS_TOKENS": {true, false},
		"MAX_TOKENS": {false, false}, "EMBEDSIDECAR_PLUGIN_REMOTE_BATCH_TOKENS": {false, false},
		"API_KEY_FILE": {false, true}, "tls_key_file": {false, true}, "PROBE_FILE": {false, false}, "API_KEY_HEADER": {
			false,
			false,
		}, "URL": {false, false},
	} {
		if got := [2]bool{secret.Variable(name), secret.File(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
