package rows

import (
	"bytes"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Intact reports whether the destination is what the ledger says we wrote, in this generation.
func (t *Table) Intact(r *Row) bool {
	if !r.Ledger || r.Anew() || r.LedgerGeneration != t.p.Generation {
		return false
	}
	if r.LedgerText == nil {
		return !r.Stored
	}
	return t.Holds(r) && t.current(r)
}

// Holds reports whether the destination holds the vector that the ledger says we wrote, whatever the generation: all
// of a pipeline's are of one model, so the vector of a text stays that of the text.
func (t *Table) Holds(r *Row) bool {
	return r.Ledger && r.LedgerText != nil && r.Stored && t.holds(r)
}

// Unchanged reports whether there is nothing to do for the row.
func (t *Table) Unchanged(r *Row) bool {
	return r.Key == r.Actual && t.Intact(r) && r.SameSource() && r.SameText()
}

// Skipped reports whether the row is as its writer left it who said that it needs no new vector, with the vector of
// before, if there was one.
func (t *Table) Skipped(r *Row) bool {
	return r.Skipped != nil && r.Key == r.Actual && t.Intact(r) && r.SameSource() &&
		(!r.Hashed || bytes.Equal(r.TextHash[:], r.Skipped))
}

// Skips reports whether a row is what its writer saw who says that it needs no new vector, and has the vector of
// before: one that never had any gets one, but for a new row.
func (t *Table) Skips(r *Row, seen pipeline.Seen) bool {
	if seen == nil || r.Key != r.Actual || r.Ledger && !t.Intact(r) || !r.Ledger && r.Stored {
		return false
	}
	return seen.Is(r.Source, r.LedgerSource)
}
