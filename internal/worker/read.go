package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// row is what a look at one key found.
type row struct {
	key    string // as asked for
	found  bool
	actual string // the key as the row prints it: another spelling of the same value, where the type has several
	keep   bool   // the filter lets it through
	text   string
	title  string // chunked: the beginning of the context line
	bytes  int    // size of the whole text, if it is more than blanks; text is empty then when it was left out
	hashed bool   // textHash is that of the whole text
	broken bool   // the text held bytes that are no UTF-8; they were replaced

	source   pipeline.SourceHash
	textHash [sha256.Size]byte

	ledger           bool // there is an entry
	ledgerVersion    string
	ledgerSource     []byte
	ledgerText       []byte // nil: no text, so no vector
	ledgerVector     []byte
	ledgerGeneration int32

	stored           bool   // the destination holds a vector
	storedHash       []byte // column: hash of the vector; table: text hash of the stored row; chunked: as in the ledger
	storedGeneration int32
}

// wanted reports whether the row has a text to embed.
func (r *row) wanted() bool {
	return r.found && r.keep && (strings.TrimSpace(r.text) != "" || r.leftOut())
}

// leftOut reports whether the text was not asked for, or too large to be read along with those of other rows.
func (r *row) leftOut() bool { return r.bytes > 0 && r.text == "" }

// intact reports whether the destination is what the ledger says we wrote, in this generation.
func (r *row) intact(p *pipeline.Pipeline) bool {
	if !r.ledger || r.anew() || r.ledgerGeneration != p.Generation {
		return false
	}
	if r.ledgerText == nil {
		return !r.stored
	}
	return r.holds(p) && (p.ToColumn() || r.storedGeneration == p.Generation)
}

// holds reports whether the destination holds the vector that the ledger says we wrote, whatever the generation: all
// of a pipeline's are of one model, so the vector of a text stays that of the text.
func (r *row) holds(p *pipeline.Pipeline) bool {
	switch {
	case !r.ledger || r.ledgerText == nil || !r.stored:
		return false
	case p.ToColumn():
		return bytes.Equal(r.storedHash, r.ledgerVector)
	case p.Chunked:
		return bytes.Equal(r.storedHash[:pipeline.VectorHashSize], r.ledgerVector)
	}
	return bytes.Equal(r.storedHash, r.ledgerText)
}

// unchanged reports whether there is nothing to do for the row.
func (r *row) unchanged(p *pipeline.Pipeline) bool {
	return r.found && r.key == r.actual && r.intact(p) && bytes.Equal(r.source, r.ledgerSource) && r.sameText()
}

// sameText reports whether the text is the one the ledger knows, as far as the ledger tells: it may have changed
// though no watched column did. Of a text without a token the ledger says no more than that there is no vector.
func (r *row) sameText() bool {
	switch {
	case !r.hashed:
		return true // there is no more than the source hash
	case !r.wanted():
		return r.ledgerText == nil
	}
	return r.ledgerText == nil || bytes.Equal(r.textHash[:], r.ledgerText)
}

// errSplit means that a key was written when the key had another number of columns.
var errSplit = errors.New("a key of another table's shape")

// keyArrays splits keys into one array per key column. It returns errSplit.
func keyArrays(p *pipeline.Pipeline, keys []string) ([]any, error) {
	arrays := make([][]string, len(p.Key))
	for _, key := range keys {
		values, err := pipeline.SplitKey(key, len(p.Key))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errSplit, err)
		}
		for i, v := range values {
			arrays[i] = append(arrays[i], v)
		}
	}
	args := make([]any, len(arrays), len(arrays)+3)
	for i, a := range arrays {
		args[i] = a
	}
	return args, nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// read looks at the rows of keys, in one statement and so in one snapshot, with their ledger entries. It returns one
// row per key, in order. Texts are read up to so many bytes, of all rows together or with chunks of each.
func (w *Worker) read(ctx context.Context, db querier, keys []string, texts int) ([]row, error) {
	p := w.o.Pipeline
	args, err := keyArrays(p, keys)
	if err != nil {
		return nil, err
	}
	args = append([]any{w.sql.formats}, append(args, keys, texts)...)
	rows, err := db.Query(ctx, w.sql.read, args...)
	if err != nil {
		return nil, fmt.Errorf("read %d rows of %s: %w", len(keys), p.Source(), err)
	}
	defer rows.Close()
	found := make([]row, len(keys))
	for rows.Next() {
		if err := w.scanRow(rows.RawValues(), keys, found); err != nil {
			return nil, fmt.Errorf("read rows of %s: %w", p.Source(), err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %d rows of %s: %w", len(keys), p.Source(), err)
	}
	return found, nil
}

// scanRow fills the row that a result line is about. The raw values live only until the next line.
func (w *Worker) scanRow(raw [][]byte, keys []string, found []row) error {
	place, err := strconv.Atoi(string(raw[readPlace]))
	if err != nil || place < 1 || place > len(keys) {
		return fmt.Errorf("place %q of %d", raw[readPlace], len(keys))
	}
	p, r := w.o.Pipeline, &found[place-1]
	r.key = keys[place-1]
	if r.found = raw[readKey] != nil; r.found {
		r.actual = string(raw[readKey])
		r.keep = len(raw[readKeep]) == 1 && raw[readKeep][0] == 't'
		if raw[readBytes] != nil {
			if r.bytes, err = strconv.Atoi(string(raw[readBytes])); err != nil {
				return fmt.Errorf("%q bytes of text", raw[readBytes])
			}
		}
		r.text = string(raw[readText])
		if valid := strings.ToValidUTF8(r.text, "\uFFFD"); valid != r.text {
			r.text, r.broken = valid, true
		}
		if p.Chunked {
			r.title = strings.ToValidUTF8(string(raw[readTitle]), "\uFFFD")
		}
		switch r.hashed = raw[readSum] != nil || !r.leftOut(); {
		case len(raw[readSum]) == sha256.Size:
			r.textHash = [sha256.Size]byte(raw[readSum])
		case p.Chunked:
			r.textHash = p.Chunking.ChunkedHash(r.text, r.title)
		default:
			r.textHash = pipeline.TextHash(r.text)
		}
		r.source = append(pipeline.SourceHash{}, raw[readSource]...)
		if p.WatchAll { // no column stands for the text
			r.source = r.source.AppendSum(r.textHash[:])
		}
	}
	if r.ledger = raw[readLedgerSource] != nil; r.ledger {
		r.ledgerSource = bytes.Clone(raw[readLedgerSource])
		r.ledgerText = bytes.Clone(raw[readLedgerText])
		r.ledgerVector = bytes.Clone(raw[readLedgerVector])
		r.ledgerVersion = string(raw[readLedgerVersion])
		generation, err := strconv.ParseInt(string(raw[readLedgerGeneration]), 10, 32)
		if err != nil {
			return fmt.Errorf("generation %q", raw[readLedgerGeneration])
		}
		r.ledgerGeneration = int32(generation)
	}
	if r.stored = raw[readStored] != nil; r.stored {
		if w.o.Pipeline.ToColumn() {
			vector, err := w.o.Pipeline.Stored.ParseBinary(raw[readStored])
			if err != nil {
				return err
			}
			hash := pipeline.VectorHash(vector)
			r.storedHash = hash[:]
		} else {
			r.storedHash = bytes.Clone(raw[readStored])
			generation, err := strconv.ParseInt(string(raw[readStoredGeneration]), 10, 32)
			if err != nil {
				return fmt.Errorf("generation %q", raw[readStoredGeneration])
			}
			r.storedGeneration = int32(generation)
		}
	}
	return nil
}
