package lists_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

func TestMap(t *testing.T) {
	t.Parallel()
	if got := lists.Map([]int{3, 1}, strconv.Itoa); !slices.Equal(got, []string{"3", "1"}) {
		t.Errorf("got %q", got)
	}
	if got := lists.Map(nil, strconv.Itoa); got == nil || len(got) != 0 {
		t.Errorf("of nothing: %#v, want an empty list that is not nil", got)
	}
}
