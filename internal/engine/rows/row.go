package rows

import (
	"bytes"
	"crypto/sha256"
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

	Ledger           bool // there is an entry
	LedgerVersion    string
	LedgerSource     []byte
	LedgerText       []byte // nil: no text, so no vector
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

// SameText reports whether the text is the one the ledger knows, as far as the ledger tells: it may have changed
// though no watched column did. Of a text without a token the ledger says no more than that there is no vector.
func (r *Row) SameText() bool {
	switch {
	case !r.Hashed:
		return true // there is no more than the source hash
	case !r.Wanted():
		return r.LedgerText == nil
	}
	return r.LedgerText == nil && r.Skipped == nil || bytes.Equal(r.TextHash[:], r.LedgerText)
}
