package rows

// Intact reports whether the destination is what the ledger says we wrote, in this generation.
func (t *Table) Intact(r *Row) bool {
	if !r.Ledger || r.Anew() || r.LedgerGeneration != t.p.Generation {
		return false
	}
	if r.LedgerText == nil {
		return !r.Stored
	}
	return t.Holds(r) && t.into.current(r)
}

// Holds reports whether the destination holds the vector that the ledger says we wrote, whatever the generation: all
// of a pipeline's are of one model, so the vector of a text stays that of the text.
func (t *Table) Holds(r *Row) bool {
	return r.Ledger && r.LedgerText != nil && r.Stored && t.into.holds(r)
}

// Unchanged reports whether there is nothing to do for the row.
func (t *Table) Unchanged(r *Row) bool {
	return r.Key == r.Actual && t.Intact(r) && r.SameSource() && r.SameText()
}
