package verbs

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

func TestVerified_InAFewWords(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]Verified{
		"ok": {OK: true}, "not ok": {}, "no such column": {Problem: "no such column"},
		"not ok, 5 queued": {Repairs: &Repairs{Looks: 3, Anew: 2}},
	} {
		if got := v.Verdict(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBad_NamesThem(t *testing.T) {
	t.Parallel()
	good := Verified{Pipeline: "good", OK: true}
	if err := Bad([]Verified{good}); err != nil {
		t.Error(err)
	}
	err := Bad([]Verified{{Pipeline: "a"}, good, {Pipeline: "b"}})
	if problem.Of(err) != problem.Failed || err.Error() != "verification failed: a, b" {
		t.Errorf("%v", err)
	}
}
