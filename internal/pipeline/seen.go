package pipeline

import "bytes"

// Seen is a row as somebody saw it who said that it needs no new vector: the hashes of its watched columns, as far as
// the WAL tells them. Anyone who looks at the row compares: somebody else may have changed it since.
type Seen []byte

// The first byte says whether the row was a new one; then each column has a byte that says whether its hash is known,
// and the hash.
const (
	seenInsert  = 1
	seenColumn  = 1 + ColumnHashSize
	columnKnown = 1
)

// NewSeen returns what is seen of a row before any column.
func NewSeen(insert bool) Seen {
	if insert {
		return Seen{seenInsert}
	}
	return Seen{0}
}

// Append adds the hash of the next watched column; nil means that the WAL left it out because it did not change.
func (s Seen) Append(hash SourceHash) Seen {
	if hash == nil {
		return append(s, make([]byte, seenColumn)...)
	}
	return append(append(s, columnKnown), hash...)
}

// Is reports whether a row is what was seen. Before is what the ledger says it was, nil where it says nothing: then
// only a row that was new was seen whole.
func (s Seen) Is(row, before SourceHash) bool {
	n := len(row) / ColumnHashSize
	if len(s) != 1+n*seenColumn || before == nil && s[0] != seenInsert || before != nil && len(before) != len(row) {
		return false
	}
	for i := range n {
		column := s[1+i*seenColumn:][:seenColumn]
		want, got := []byte(column[1:]), row[i*ColumnHashSize:][:ColumnHashSize]
		if column[0] != columnKnown {
			if before == nil {
				return false
			}
			want = before[i*ColumnHashSize:][:ColumnHashSize]
		}
		if !bytes.Equal(want, got) {
			return false
		}
	}
	return true
}

// With is what was seen of a row by two in a row: what the later one did not see the earlier one did.
func (s Seen) With(later Seen) Seen {
	if s == nil || later == nil || len(s) != len(later) {
		return nil
	}
	both := bytes.Clone(later)
	both[0] |= s[0]
	for at := 1; at < len(both); at += seenColumn {
		if both[at] != columnKnown {
			copy(both[at:at+seenColumn], s[at:])
		}
	}
	return both
}
