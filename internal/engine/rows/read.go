package rows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Limits of what is read of a row.
const (
	// MaxText is the maximum number of characters read of a text. Models read a few thousand tokens at most, but no
	// number of characters is sure to contain them: a megabyte of spaces may have no token.
	MaxText = 1 << 20
	// maxTitle is the maximum number of characters read of a context.
	maxTitle = 2000
)

// sourceStatements are the statements on the source table.
type sourceStatements struct {
	read   statement      // rows by key, with ledger entries and destination contents
	screen statement      // the same for rows that may be processed directly; see screened.go
	lanes  statement      // the lanes that rows specify; empty if they specify none
	gone   statement      // keys without a source row
	spell  statement      // keys as values of the key columns: fails for malformed keys
	rows   pageStatements // keys of the source table, and whether the ledger knows them
}

// The result columns of read.
const (
	readPlace = iota
	readKey
	readKeep
	readText
	readBytes // bytes of the text, NULL if it is blank
	readSum   // text hash of a text that is not sent
	readNorm  // hash of the normalised text
	readTitle // chunked: start of the context line
	readSource
	readLedgerSource
	readLedgerText
	readLedgerNorm
	readLedgerVector
	readLedgerGeneration
	readLedgerVersion // xmin of the entry, compared by a write-back
	readAdopted
	readSkipped
	readSkippedAt
	// column: the vector; table: text hash of the stored row; chunked: hash over the hashes of all chunks
	readStored
	readStoredGeneration // table only
	readColumns
)

// readFormats are the result formats: hashes and vectors in binary.
var readFormats = func() pgx.QueryResultFormats {
	formats := make(pgx.QueryResultFormats, readColumns)
	for _, at := range []int{
		readSum, readNorm, readSource, readLedgerSource, readLedgerText, readLedgerNorm, readLedgerVector, readSkipped,
		readStored,
	} {
		formats[at] = pgx.BinaryFormatCode
	}
	return formats
}()

// blanks are the common characters that an empty text may consist of.
const blanks = `E' \t\n\f\r\x0b'`

// readParts is a destination's contribution to the statement read.
type readParts struct {
	text  string // expression for the text of row r, cut to its limit
	title string // expression for the context, or ""
	send  string // condition for sending the text, f.body
	hash  string // text hash of f.body
	norm  string // hash of the normalised text, or "" without normalisation
	// what row r itself stores, or ""
	column string
	stored string // the last two columns
	join   string // join for the stored columns, or ""
}

// limit returns the parameter with the maximum bytes of texts to send.
func (b *builder) limit() string { return b.param("texts") + "::bigint" }

// wholeTexts reads texts with one vector each, up to a byte limit over all rows; of the others it returns the hash. In
// a SQL_ASCII database the worker may have to repair texts before hashing them, so it gets them all.
func wholeTexts(b *builder) readParts {
	hashed := func(text string) string { return "sha256(convert_to(" + text + ", pg_client_encoding()::name))" }
	l := readParts{
		text: fmt.Sprintf("left(%s, %d)", b.p.TextExpression(), MaxText),
		send: "(sum(octet_length(f.body)) OVER (ORDER BY k.place) <= " + b.limit() +
			" OR pg_client_encoding() = 'SQL_ASCII')",
		hash: hashed("f.body"),
	}
	if b.p.Ignore != "" {
		l.norm = hashed(b.p.Normalised("f.body"))
	}
	return l
}

func newSource(p *pipeline.Pipeline, into destination) sourceStatements {
	var screen statement
	if !p.Chunked { // chunked rows may take any time
		screen = build(p, func(b *builder) string { return screenSQL(b, into) })
	}
	var lanes statement
	if p.PriorityBy != "" {
		lanes = build(p, func(b *builder) string {
			return "SELECT k.place, (SELECT " + p.LaneExpression() + " FROM " + source(p) + " WHERE " + b.matchSource() +
				" LIMIT 1) FROM " + b.list()
		})
	}
	return sourceStatements{
		screen: screen, lanes: lanes,
		read: build(p, func(b *builder) string { return lookSQL(b, into, b.list(keysAsTheyAre), "", "") }),
		gone: build(p, func(b *builder) string {
			return "SELECT k.row_key FROM " + b.list(keysAsTheyAre) + " WHERE NOT EXISTS (SELECT FROM " + source(p) +
				" WHERE " + b.matchSource() + " AND " + p.KeyExpression("r") + " = k.row_key" + sameTables(p) + " OFFSET 0)"
		}),
		spell: build(p, func(b *builder) string { return "SELECT " + keyValues(p) + " FROM " + b.list() }),
		rows:  newRowPages(p, "", ""),
	}
}

// lookSQL reads those rows of list that meet the condition which, with additional columns more.
func lookSQL(b *builder, into destination, list, which, more string) string {
	p := b.p
	l := into.readParts(b)
	if which != "" {
		which, more = " AND "+which, ", "+more
	}
	filtered := func(expression string) string {
		return "CASE WHEN " + p.FilterExpression() + " THEN " + expression + " END"
	}
	inner := []string{
		p.KeyExpression("r") + " AS row_key", p.FilterExpression() + " AS keep", sourceHash(p) + " AS source",
		filtered(l.text) + " AS body",
	}
	title := "NULL::text"
	if l.title != "" {
		inner, title = append(inner, filtered(l.title)+" AS title"), "f.title"
	}
	if l.column != "" {
		inner = append(inner, l.column+" AS stored")
	}
	// Check the start first: trimming a long text costs more than the rest of the statement.
	empty := fmt.Sprintf("btrim(left(f.body, 100), %s) = '' AND btrim(f.body, %s) = ''", blanks, blanks)
	norm := "NULL::bytea"
	if l.norm != "" {
		norm = "CASE WHEN NOT (" + empty + ") THEN " + l.norm + " END"
	}
	body := fmt.Sprintf("CASE WHEN %s THEN f.body END, CASE WHEN NOT (%s) THEN octet_length(f.body) END,"+
		" CASE WHEN NOT %s THEN %s END, %s, %s", l.send, empty, l.send, l.hash, norm, title)
	return "SELECT k.place, f.row_key, f.keep, " + body +
		", f.source, l.source_hash, l.text_hash, l.norm_hash, l.vector_hash, l.generation, l.version, l.adopted, l.skipped, l.skipped_at, " +
		l.stored + more +
		"\nFROM " + list +
		"\nLEFT JOIN LATERAL (SELECT " + strings.Join(inner, ", ") + " FROM " + source(p) + " WHERE " + b.matchSource() +
		which + " LIMIT 1) AS f ON true" +
		fmt.Sprintf("\nLEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.norm_hash, g.vector_hash, g.generation,"+
			" g.xmin::text AS version, CASE WHEN g.lsn = '0/0' THEN extract(epoch FROM g.written_at)::bigint END AS adopted,"+
			" g.skipped, CASE WHEN g.skipped IS NOT NULL THEN g.lsn END AS skipped_at"+
			" FROM embedsidecar.ledger AS g"+
			" WHERE g.pipeline_id = %d AND g.row_key = k.row_key%s OFFSET 0) AS l ON true", p.ID, which) + l.join +
		"\nWHERE true" + sameTables(p) + sameInto(p) + "\nORDER BY k.place"
}

// Read reads the rows of keys with their ledger entries, in statements of as many rows as can be read in time. Each
// statement has one snapshot. It returns one row per key, in order. texts limits the bytes of text of all rows
// together, or of each row with chunks. It returns ErrSplit.
func (t *Table) Read(ctx context.Context, keys []string, texts int) (found []Row, err error) {
	if len(keys) <= 1 {
		found, err = t.readOne(ctx, keys, texts)
		if len(keys) == 0 || !errors.Is(err, database.ErrTooLong) {
			return found, err
		}
	}
	found = make([]Row, 0, len(keys))
	for len(found) < len(keys) {
		var page []Row
		rest := keys[len(found):]
		err := t.pager.page(ctx, len(rest), rowTime, func(ctx context.Context, tx pgx.Tx, n int) (err error) {
			page, err = t.readBy(ctx, tx, rest[:n], texts)
			return err
		})
		if err != nil {
			return nil, err
		}
		for i := range page {
			if !t.p.Chunked {
				texts -= len(page[i].Text)
			}
		}
		texts = max(texts, 0)
		found = append(found, page...)
	}
	return found, nil
}

// readOne reads at most one row, without the round trips of a page.
func (t *Table) readOne(ctx context.Context, keys []string, texts int) (found []Row, err error) {
	db, release, err := database.Acquired(ctx, t.db)
	if err != nil {
		return nil, err
	}
	defer release()
	err = database.Limited(ctx, afterwards*pageTime, func(ctx context.Context) (err error) {
		found, err = t.readBy(ctx, db, keys, texts)
		return err
	})
	return found, err
}

func (t *Table) readBy(ctx context.Context, db database.Reader, keys []string, texts int) ([]Row, error) {
	args, err := t.sql.read.args(t.p, keys, values{"texts": texts})
	if err != nil {
		return nil, err
	}
	found := make([]Row, len(keys))
	err = eachLine(ctx, db, readFormats, t.sql.read, args, func(raw [][]byte) error { return t.scan(raw, keys, found) })
	return found, wrap.Errorf(err, "read %d rows of %s", len(keys), t.p.Source())
}

// scan fills the row that a result row belongs to. raw is valid only during the call.
func (t *Table) scan(raw [][]byte, keys []string, found []Row) error {
	place, err := parsePlace(raw[readPlace], len(keys))
	if err != nil {
		return err
	}
	r := &found[place]
	r.Key = keys[place]
	if r.Found = raw[readKey] != nil; r.Found {
		if err := t.scanSource(raw, r); err != nil {
			return err
		}
	}
	if r.Ledger = raw[readLedgerSource] != nil; r.Ledger {
		r.LedgerSource = bytes.Clone(raw[readLedgerSource])
		r.LedgerText = bytes.Clone(raw[readLedgerText])
		r.LedgerNorm = bytes.Clone(raw[readLedgerNorm])
		r.LedgerVector = bytes.Clone(raw[readLedgerVector])
		r.LedgerVersion = string(raw[readLedgerVersion])
		if r.LedgerGeneration, err = parseGeneration(raw[readLedgerGeneration]); err != nil {
			return err
		}
		if raw[readAdopted] != nil {
			seconds, err := strconv.ParseInt(string(raw[readAdopted]), 10, 64)
			if err != nil {
				return fmt.Errorf("adopted at %q", raw[readAdopted])
			}
			r.Adopted = time.Unix(seconds, 0)
		}
		r.Skipped = bytes.Clone(raw[readSkipped])
		if r.SkippedAt, err = parseLSN(raw[readSkippedAt]); err != nil {
			return err
		}
	}
	if r.Stored = raw[readStored] != nil; r.Stored {
		return t.found(raw[readStored], raw[readStoredGeneration], r)
	}
	return nil
}

// scanSource fills in the source row's columns.
func (t *Table) scanSource(raw [][]byte, r *Row) (err error) {
	r.Actual = string(raw[readKey])
	r.Keep = len(raw[readKeep]) == 1 && raw[readKeep][0] == 't'
	if raw[readBytes] != nil {
		if r.Bytes, err = strconv.Atoi(string(raw[readBytes])); err != nil {
			return fmt.Errorf("%q bytes of text", raw[readBytes])
		}
	}
	r.Text = string(raw[readText])
	if valid := strings.ToValidUTF8(r.Text, "\uFFFD"); valid != r.Text {
		r.Text, r.Broken = valid, true
	}
	r.Norm = bytes.Clone(raw[readNorm])
	r.Title = strings.ToValidUTF8(string(raw[readTitle]), "\uFFFD")
	switch r.Hashed = raw[readSum] != nil || !r.LeftOut(); {
	case len(raw[readSum]) == sha256.Size:
		r.TextHash = [sha256.Size]byte(raw[readSum])
	case t.p.Chunked:
		r.TextHash = t.p.Chunking.ChunkedHash(r.Text, r.Title)
	default:
		r.TextHash = pipeline.TextHash(r.Text)
	}
	r.Source = append(pipeline.SourceHash{}, raw[readSource]...)
	if t.p.WatchAll { // no column represents the text
		r.Source = r.Source.AppendSum(r.TextHash[:])
	}
	return nil
}

func parseLSN(text []byte) (pglogrepl.LSN, error) {
	if text == nil {
		return 0, nil
	}
	return pglogrepl.ParseLSN(string(text))
}

func parseGeneration(text []byte) (int32, error) {
	generation, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("generation %q", text)
	}
	return int32(generation), nil
}

// IsKey reports whether a key is valid for the table.
func (t *Table) IsKey(ctx context.Context, key string) bool {
	args, err := t.sql.spell.args(t.p, []string{key}, nil)
	if err != nil {
		return false
	}
	_, err = t.db.Exec(ctx, t.sql.spell.sql, args...)
	return Fault(err) != database.Data
}

// OfSomeRow reports whether a read failed because of one of its rows: without rows it does not fail.
func (t *Table) OfSomeRow(ctx context.Context, err error) bool {
	switch Fault(err) {
	case database.Data:
		return true
	case database.Forbidden, database.Schema, database.Unavailable:
		_, all := t.Read(ctx, nil, 0)
		return all == nil
	case database.Unjudged, database.Ended, database.Locked, database.Conflict, database.Canceled:
	}
	return false
}

// Vectors returns the stored vectors of rows by the index of their key; with chunks, the first vector of each row. It
// returns ErrSplit.
func (t *Table) Vectors(ctx context.Context, keys []string) (map[int][]float32, error) {
	s := t.stored()
	args, err := s.args(t.p, keys, nil)
	if err != nil {
		return nil, err
	}
	db, release, err := database.Acquired(ctx, t.db)
	if err != nil {
		return nil, err
	}
	defer release()
	found := map[int][]float32{}
	err = database.Limited(ctx, afterwards*rowTime, func(ctx context.Context) error {
		return eachVector(ctx, db, t.p, s, args, len(keys), func(place int, vector []float32) error {
			found[place] = vector
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
