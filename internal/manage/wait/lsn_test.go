package caughtup_test

import (
	"testing"

	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
)

func TestParseLSN(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]uint64{"0/0": 0, "16/B374D848": 0x16B374D848, "ffffffff/FFFFFFFF": 1<<64 - 1} {
		if got, err := caughtup.ParseLSN(in); err != nil || uint64(got) != want {
			t.Errorf("ParseLSN(%q) = %s, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "/", "0", "0/", "/0", "16/B374D848junk", "1/1FFFFFFFF", "1/2/3", "+1/2", "0x1/2",
		" 0/1", "1_0/1", "-1/0",
	} {
		if got, err := caughtup.ParseLSN(in); err == nil {
			t.Errorf("ParseLSN(%q) = %s", in, got)
		}
	}
}
