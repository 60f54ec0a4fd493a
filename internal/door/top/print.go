package top

import (
	"errors"
	"fmt"
	"io"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Print writes a frame, its tables as table does.
func (f Frame) Print(to io.Writer, table func(Table) error) error {
	var failed error
	lines := func(mark string, list ...string) {
		for _, line := range list {
			_, err := fmt.Fprintf(to, "%s%s\n", mark, wording.OneLine(line))
			failed = errors.Join(failed, err)
		}
	}
	apart := func(t Table) {
		if len(t.Rows) > 0 {
			lines("", "")
			failed = errors.Join(failed, table(t))
		}
	}
	lines("", f.Head)
	apart(f.Pipelines)
	lines("", f.Bars...)
	apart(f.Sidecars)
	apart(f.Slots)
	if len(f.Remarks) > 0 {
		lines("", "")
	}
	lines("! ", f.Remarks...)
	return failed
}
