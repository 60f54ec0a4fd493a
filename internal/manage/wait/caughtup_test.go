package caughtup_test

import (
	"testing"

	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

func TestLeft_NamesAllThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	for want, state := range map[string]report.CaughtUp{
		"the last query did not finish":                                {Decoded: true, Failed: 2, Resting: []string{"a"}},
		"the latest changes are not read yet, 1 row left to embed":     {Open: 1},
		"the scan of 2 pipelines is still running":                     {Decoded: true, Scans: 2},
		"the altered table of 1 pipeline is not looked at yet":         {Decoded: true, Altered: 1},
		"3 rows left to embed, the streamer does not know yet: a, b c": {Decoded: true, Open: 3, Unrouted: []string{"a", "b c"}},
	} {
		if got := caughtup.Left(state); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
