//go:build !tokenizers || !cgo

package tokenizers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/tokenizers"
)

// A build without the crate names the one that has it.
func TestNew_NotBuilt(t *testing.T) {
	_, err := tokenizers.New([]byte(`{"model": {"type": "BPE"}}`))
	if !errors.Is(err, tokenizers.ErrNotBuilt) || !strings.Contains(err.Error(), "-tags tokenizers") {
		t.Errorf("got %v, want ErrNotBuilt with the way to build it", err)
	}
	if _, err := new(tokenizers.Tokenizer).Encode("a"); tokenizers.Linked || !errors.Is(err, tokenizers.ErrNotBuilt) {
		t.Errorf("got %v, want ErrNotBuilt", err)
	}
}
