package rows

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Row is what was read for one key.
type Row struct {
	Key    string // as requested
	Found  bool
	Actual string // key as printed by the row; types with several spellings of a value may differ from Key
	Keep   bool   // the filter accepts it
	Text   string
	Title  string // chunked: start of the context line
	Bytes  int    // size of the whole text, 0 if it is blank; Text is empty if it was left out
	Hashed bool   // TextHash covers the whole text
	Broken bool   // the text had invalid UTF-8, which was replaced
	New    bool   // the ledger has no row of the pipeline with this text; false: or unknown

	Source   pipeline.SourceHash
	TextHash [sha256.Size]byte
	Norm     []byte // hash of the normalised text (Pipeline.Normalised); nil: no normalisation

	Ledger           bool // an entry exists
	LedgerVersion    string
	LedgerSource     []byte
	LedgerText       []byte // hash of the embedded text; nil: no text, so no vector
	LedgerNorm       []byte // NormOf that text; nil: no normalisation. Without LedgerText: hash of a text without tokens
	LedgerVector     []byte
	LedgerGeneration int32
	Adopted          time.Time     // when the vector was adopted; zero: it was written since
	Skipped          []byte        // hash of the text whose writer declared that it needs no new vector; nil: none
	SkippedAt        pglogrepl.LSN // position up to which Skipped holds

	Stored           bool   // the destination holds a vector
	StoredHash       []byte // column: vector hash; table: text hash of the stored row; chunked: as in the ledger
	StoredGeneration int32  // 0: unknown
}

// Wanted reports whether the row has a text to embed.
func (r *Row) Wanted() bool {
	return r.Found && r.Keep && (strings.TrimSpace(r.Text) != "" || r.LeftOut())
}

// LeftOut reports whether the text was not requested, or too large to be read with other rows.
func (r *Row) LeftOut() bool { return r.Bytes > 0 && r.Text == "" }

// Anew reports whether the row must be embedded again even if its text is unchanged.
func (r *Row) Anew() bool { return r.Ledger && len(r.LedgerVector) == 0 }

// SameSource reports whether the watched columns match the ledger.
func (r *Row) SameSource() bool { return r.Found && bytes.Equal(r.Source, r.LedgerSource) }

// SameText reports whether the text, or its normalised form, matches the ledger, as far as is known. It may change
// without a watched column, and so may the filter.
func (r *Row) SameText() bool {
	switch {
	case !r.Hashed:
		return true // only the source hash can be compared
	case !r.Wanted():
		return r.LedgerText == nil
	}
	return r.Tokenless() || r.ExactText() || r.Ignored()
}

// Tokenless reports whether the embedder found no token in exactly this text.
func (r *Row) Tokenless() bool {
	return r.Hashed && r.LedgerText == nil && r.Skipped == nil && bytes.Equal(r.LedgerNorm, r.TextHash[:])
}

// ExactText reports whether the ledger's vector is of exactly this text.
func (r *Row) ExactText() bool { return r.Hashed && bytes.Equal(r.TextHash[:], r.LedgerText) }

// Ignored reports whether the ledger's vector is of another text with the same normalised form.
func (r *Row) Ignored() bool {
	return r.Hashed && r.LedgerText != nil && !r.ExactText() && r.Norm != nil &&
		bytes.Equal(r.NormOf(r.LedgerText), r.LedgerNorm)
}

// NormOf returns the ledger's hash of Norm combined with a text hash. It matches no other text: a program that does not
// know norm_hash may write an entry and leave the old value there.
func (r *Row) NormOf(textHash []byte) []byte {
	if r.Norm == nil {
		return nil
	}
	sum := sha256.Sum256(slices.Concat(textHash, r.Norm))
	return sum[:]
}
