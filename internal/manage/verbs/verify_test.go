package verbs

import (
	"strconv"
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

// TestP10_WhatIsSaidToBeQueuedIsQueued: a scan finds rows to be checked again, so there may be more than are named. It
// finds no row whose vector differs from the model's.
func TestP10_WhatIsSaidToBeQueuedIsQueued(t *testing.T) {
	t.Parallel()
	r := Repairs{}
	for i := range 2 * mostNamed {
		r.found(strconv.Itoa(i), true)
		r.found(strconv.Itoa(i), true) // another chunk of it
		r.found(strconv.Itoa(i), false)
	}
	if len(r.anew) != 2*mostNamed || r.Anew != 4*mostNamed {
		t.Errorf("%d rows are embedded again, %d are told", len(r.anew), r.Anew)
	}
	if len(r.looks) != mostNamed || r.Looks != 2*mostNamed {
		t.Errorf("%d rows are named, %d are told", len(r.looks), r.Looks)
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
