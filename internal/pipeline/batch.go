package pipeline

import "fmt"

// Batch says when a pipeline has texts embedded by batch jobs of its provider.
type Batch struct {
	When string `json:"when,omitempty"` // BatchBackfill; else: never
	Over int    `json:"over,omitempty"` // rows of a scan; 0: the default
}

// BatchBackfill is when scans make jobs.
const BatchBackfill = "backfill"

const defaultOver = 10_000

// On reports whether jobs are made.
func (b Batch) On() bool { return b.When == BatchBackfill }

// Rows is how many rows a scan must find for them, and one more.
func (b Batch) Rows() int {
	if b.Over == 0 {
		return defaultOver
	}
	return b.Over
}

// Mistake returns what is wrong with it, or "".
func (b Batch) Mistake() string {
	if b.Over != 0 && !b.On() {
		return "over has no effect without when: backfill"
	}
	return ""
}

// String is it as configurations spell it; "": there is none.
func (b Batch) String() string {
	if !b.On() {
		return ""
	}
	return fmt.Sprintf("when: %s, over: %d", b.When, b.Rows())
}

// Row is it as the row of a pipeline has it; nil: there is none.
func (b Batch) Row() *Batch {
	if !b.On() {
		return nil
	}
	return &b
}

// PriceOf is the price that a backfill of so many texts has.
func (b Batch) PriceOf(p Price, texts int64) Price {
	if b.On() && texts > int64(b.Rows()) {
		p.Million = p.Batch
	}
	return p
}
