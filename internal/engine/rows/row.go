package rows

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Row is what a look at one key found.
type Row struct {
	Key    string // as asked for
	Found  bool
	Actual string // the key as the row prints it: another spelling of the same value, where the type has several
	Keep   bool   // the filter lets it through
	Text   string
	Title  string // chunked: the beginning of the context line
	Bytes  int    // size of the whole text, if it is more than blanks; Text is empty then when it was left out
	Hashed bool   // TextHash is that of the whole text
	Broken bool   // the text held bytes that are no UTF-8; they were replaced
	New    bool   // no row of the pipeline has the text, as far as the ledger knows; false: nobody has looked

	Source   pipeline.SourceHash
	TextHash [sha256.Size]byte
	Norm     []byte // hash of what counts of the text (Pipeline.Normalised); nil: all of it

	Ledger           bool // there is an entry
	LedgerVersion    string
	LedgerSource     []byte
	LedgerText       []byte // of the text that the vector is of; nil: no text, so no vector
	LedgerNorm       []byte // NormOf that text; nil: all of it counts
	LedgerVector     []byte
	LedgerGeneration int32
	Skipped          []byte        // the text hash that its writer said needs no new vector; nil: none
	SkippedAt        pglogrepl.LSN // up to which that holds, whatever changed

	Stored           bool   // the destination holds a vector
	StoredHash       []byte // column: hash of the vector; table: text hash of the stored row; chunked: as in the ledger
	StoredGeneration int32  // 0: the destination does not say
}

// Wanted reports whether the row has a text to embed.
func (r *Row) Wanted() bool {
	return r.Found && r.Keep && (strings.TrimSpace(r.Text) != "" || r.LeftOut())
}

// LeftOut reports whether the text was not asked for, or too large to be read along with those of other rows.
func (r *Row) LeftOut() bool { return r.Bytes > 0 && r.Text == "" }

// Anew reports whether the row is to be embedded though its text may be what it was.
func (r *Row) Anew() bool { return r.Ledger && len(r.LedgerVector) == 0 }

// SameSource reports whether the watched columns are what the ledger says they were.
func (r *Row) SameSource() bool { return r.Found && bytes.Equal(r.Source, r.LedgerSource) }

// SameText reports whether the text is the one the ledger knows, or counts as that, as far as the ledger tells: it may
// have changed though no watched column did. Of a text without a token the ledger says no more than that there is no
// vector.
func (r *Row) SameText() bool {
	switch {
	case !r.Hashed:
		return true // there is no more than the source hash
	case !r.Wanted():
		return r.LedgerText == nil
	}
	return r.LedgerText == nil && r.Skipped == nil || r.ExactText() || r.Ignored()
}

// ExactText reports whether the vector that the ledger knows is of this very text.
func (r *Row) ExactText() bool { return r.Hashed && bytes.Equal(r.TextHash[:], r.LedgerText) }

// Ignored reports whether the vector that the ledger knows is of another text that counts as this one.
func (r *Row) Ignored() bool {
	return r.Hashed && r.LedgerText != nil && !r.ExactText() && r.Norm != nil &&
		bytes.Equal(r.NormOf(r.LedgerText), r.LedgerNorm)
}

// NormOf is what the ledger keeps of Norm with the hash of a text that counts as the row's. It says nothing of another
// text: a program that knows nothing of it may write an entry, and leave it there.
func (r *Row) NormOf(textHash []byte) []byte {
	if r.Norm == nil {
		return nil
	}
	sum := sha256.Sum256(slices.Concat(textHash, r.Norm))
	return sum[:]
}
