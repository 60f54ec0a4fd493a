package pipeline

import "bytes"

// Seen is a row's state in a change that needed no new vector: the hashes of its watched columns, as far as the WAL has
// them. Readers of the row compare it, because a later change may have followed.
type Seen []byte

// The first byte says whether the row was inserted. Then each column has a byte that says whether its hash is known,
// and the hash.
const (
	seenInsert  = 1
	seenColumn  = 1 + ColumnHashSize
	columnKnown = 1
)

// NewSeen returns a Seen without columns.
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

// Is reports whether a row equals what was seen. before is the row according to the ledger, or nil if unknown: then
// only an inserted row was seen completely.
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

// With combines two consecutive states: where the later one lacks a hash, it is that of the earlier one.
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
