package conformance

import (
	"context"
	"fmt"
	"slices"
)

// Verdict is what a check found.
type Verdict string

// The verdicts, from good to bad.
const (
	Pass Verdict = "pass"
	Warn Verdict = "warn" // the sidecar copes, somebody will wonder
	Fail Verdict = "fail" // the contract is broken
)

func worse(a, b Verdict) Verdict {
	order := []Verdict{Pass, Warn, Fail}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// Check is the outcome of one check.
type Check struct {
	ID       string  `json:"id"`
	Title    string  `json:"title"` // what must hold
	Verdict  Verdict `json:"verdict"`
	Measured string  `json:"measured"`
	Advice   string  `json:"advice,omitempty"` // what to do; "" when it passed
	Seconds  float64 `json:"seconds"`
}

type finding struct {
	verdict          Verdict
	measured, advice string
}

func pass(measured string, args ...any) finding {
	return finding{verdict: Pass, measured: fmt.Sprintf(measured, args...)}
}

func warn(advice, measured string, args ...any) finding {
	return finding{verdict: Warn, measured: fmt.Sprintf(measured, args...), advice: advice}
}

func fail(advice, measured string, args ...any) finding {
	return finding{verdict: Fail, measured: fmt.Sprintf(measured, args...), advice: advice}
}

// check is one thing that must hold.
type check struct {
	id, title string
	bare      bool // starts the program by itself
	reranks   bool // also of a reranker, which makes no vectors
	run       func(context.Context, *tester) finding
	// advice is for when a call fails in the middle of it.
	advice string
}
