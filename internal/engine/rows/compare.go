package rows

import (
	"bytes"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Intact reports whether the destination matches the ledger, under the present definition.
func (t *Table) Intact(r *Row) bool {
	if !r.Ledger || r.Anew() || r.LedgerGeneration != t.p.Generation {
		return false
	}
	if r.LedgerText == nil {
		return !r.Stored
	}
	return t.Holds(r) && t.current(r)
}

// Holds reports whether the destination holds the vector recorded in the ledger, whatever definition it was made under:
// Generation counts the definitions of one row of the table pipeline, whose model never changes.
func (t *Table) Holds(r *Row) bool {
	return r.Ledger && r.LedgerText != nil && r.Stored && t.holds(r)
}

// Unchanged reports whether the row needs no work.
func (t *Table) Unchanged(r *Row) bool {
	return r.Key == r.Actual && t.Intact(r) && r.SameSource() && r.SameText()
}

// Skipped reports whether the row is unchanged since its writer declared that it needs no new vector, and still has its
// previous vector, if any.
func (t *Table) Skipped(r *Row) bool {
	return r.Skipped != nil && r.Key == r.Actual && t.Intact(r) && r.SameSource() &&
		(!r.Hashed || bytes.Equal(r.TextHash[:], r.Skipped))
}

// Skips reports whether the row is as its writer saw it when declaring that it needs no new vector, and has its
// previous vector. A row without a vector gets one, unless it is new.
func (t *Table) Skips(r *Row, seen pipeline.Seen) bool {
	if seen == nil || r.Key != r.Actual || r.Ledger && !t.Intact(r) || !r.Ledger && r.Stored {
		return false
	}
	return seen.Is(r.Source, r.LedgerSource)
}
