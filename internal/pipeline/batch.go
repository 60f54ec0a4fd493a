package pipeline

import "fmt"

// Batch says when a pipeline uses batch jobs of its provider.
type Batch struct {
	When string `json:"when,omitempty"` // BatchBackfill; else: never
	Over int    `json:"over,omitempty"` // rows of a scan; 0: the default
}

// BatchBackfill means that scans make jobs.
const BatchBackfill = "backfill"

const defaultOver = 10_000

// On reports whether jobs are used.
func (b Batch) On() bool { return b.When == BatchBackfill }

// Rows is how many rows a scan must exceed to use jobs.
func (b Batch) Rows() int {
	if b.Over == 0 {
		return defaultOver
	}
	return b.Over
}

// Mistake returns what is wrong with the setting, or "".
func (b Batch) Mistake() string {
	if b.Over != 0 && !b.On() {
		return "over has no effect without when: backfill"
	}
	return ""
}

// String returns the setting as in a configuration; "": off.
func (b Batch) String() string {
	if !b.On() {
		return ""
	}
	return fmt.Sprintf("when: %s, over: %d", b.When, b.Rows())
}

// Row returns the value for the pipeline's row; nil: off.
func (b Batch) Row() *Batch {
	if !b.On() {
		return nil
	}
	return &b
}

// PriceOf returns the price for a backfill of so many texts.
func (b Batch) PriceOf(p Price, texts int64) Price {
	if b.On() && texts > int64(b.Rows()) {
		p.Million = p.Batch
	}
	return p
}
