package wrap_test

import (
	"errors"
	"io"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

func TestErrorf(t *testing.T) {
	t.Parallel()
	if err := wrap.Errorf(nil, "read %q", "100%"); err != nil {
		t.Errorf("of no error: %v", err)
	}
	err := wrap.Errorf(io.EOF, "read %q", "100%")
	if want := `read "100%": EOF`; err.Error() != want || !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %s", err, want)
	}
}
