package top

import (
	"fmt"
	"io"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Print writes a frame, its tables as table does.
func (f Frame) Print(to io.Writer, table func(Table) error) error {
	printf := func(format string, args ...any) error {
		_, err := fmt.Fprintf(to, format, args...)
		return err
	}
	lines := func(list []string, mark string) error {
		for _, line := range list {
			if err := printf("%s%s\n", mark, wording.OneLine(line)); err != nil {
				return err
			}
		}
		return nil
	}
	apart := func(t Table) error {
		if len(t.Rows) == 0 {
			return nil
		}
		if err := printf("\n"); err != nil {
			return err
		}
		return table(t)
	}
	for _, part := range []func() error{
		func() error { return lines([]string{f.Head}, "") },
		func() error { return apart(f.Pipelines) },
		func() error { return lines(f.Bars, "") },
		func() error { return apart(f.Sidecars) },
		func() error { return apart(f.Slots) },
		func() error { return printf("%s", strings.Repeat("\n", min(len(f.Remarks), 1))) },
		func() error { return lines(f.Remarks, "! ") },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}
