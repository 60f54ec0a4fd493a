package rows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Limits of what is looked at of a row.
const (
	// MaxText is how many characters of a text are looked at. Models read a few thousand tokens at most, but no number of
	// characters is certain to hold them: a tokenizer may make nothing of a megabyte of blanks.
	MaxText = 1 << 20
	// maxTitle is how many characters of a context are looked at.
	maxTitle = 2000
)

// sourceStatements are those about the source table.
type sourceStatements struct {
	read   statement      // rows by key, with their ledger entries and what the destination holds
	screen statement      // the same, of those alone that may be worked at once; see screened.go
	lanes  statement      // in which lanes rows say that they are; none if they do not say so
	gone   statement      // which of some keys have no source row
	spell  statement      // keys as values of the key columns: it fails if one is none
	rows   pageStatements // keys of the source table, and whether the ledger knows them
}

// The columns that read gives.
const (
	readPlace = iota
	readKey
	readKeep
	readText
	readBytes // of a text that is more than blanks
	readSum   // the text hash of a text that is not sent
	readNorm  // the hash of what counts of the text
	readTitle // chunked: the beginning of the context line
	readSource
	readLedgerSource
	readLedgerText
	readLedgerNorm
	readLedgerVector
	readLedgerGeneration
	readLedgerVersion // xmin of the entry: what a write-back compares
	readSkipped
	readSkippedAt
	// column: the vector; table: the text hash of the stored row; chunked: the hash of those of all chunks
	readStored
	readStoredGeneration // table only
	readColumns
)

// readFormats are how they come: what is no text, in binary.
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

// blanks are the characters of which a text may consist that is empty, but for those that are rarer.
const blanks = `E' \t\n\f\r\x0b'`

// looking is what a destination says of the statement read.
type looking struct {
	text  string // the text, as far as it is looked at: an expression of the row r
	title string // the context's, or ""
	send  string // whether the text, f.body, is sent
	hash  string // the text hash of f.body
	norm  string // the hash of what counts of it, or "": all of it counts
	// what the row r itself holds, or ""
	column string
	stored string // the last two columns
	join   string // a join that gives them, or ""
}

// limit is the parameter that says how many bytes of texts are sent.
func (b *builder) limit() string { return b.param("texts") + "::bigint" }

// wholeTexts is how texts are read that have one vector each: up to a number of bytes of all rows together. Of others
// there is the hash. The bytes of a SQL_ASCII database may have to be mended before they are hashed, which only the
// worker does.
func wholeTexts(b *builder) looking {
	hashed := func(text string) string { return "sha256(convert_to(" + text + ", pg_client_encoding()::name))" }
	l := looking{
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
	if !p.Chunked { // those may take any time
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
		read: build(p, func(b *builder) string { return readSQL(b, into) }),
		gone: build(p, func(b *builder) string {
			return "SELECT k.row_key FROM " + b.list(keysAsTheyAre) + " WHERE NOT EXISTS (SELECT FROM " + source(p) +
				" WHERE " + b.matchSource() + " AND " + p.KeyExpression("r") + " = k.row_key" + sameTables(p) + " OFFSET 0)"
		}),
		spell: build(p, func(b *builder) string { return "SELECT " + keyValues(p) + " FROM " + b.list() }),
		rows:  newRowPages(p, "", ""),
	}
}

// readSQL is the statement that reads rows by key.
func readSQL(b *builder, into destination) string {
	return lookSQL(b, into, b.list(keysAsTheyAre), "", "")
}

// lookSQL reads the rows of a list k, those of them that a condition says, and adds columns.
func lookSQL(b *builder, into destination, list, which, more string) string {
	p := b.p
	l := into.look(b)
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
	// Of most texts the beginning tells that they are not empty: to trim a long one costs more than all the rest of it.
	empty := fmt.Sprintf("btrim(left(f.body, 100), %s) = '' AND btrim(f.body, %s) = ''", blanks, blanks)
	norm := "NULL::bytea"
	if l.norm != "" {
		norm = "CASE WHEN NOT (" + empty + ") THEN " + l.norm + " END"
	}
	body := fmt.Sprintf("CASE WHEN %s THEN f.body END, CASE WHEN NOT (%s) THEN octet_length(f.body) END,"+
		" CASE WHEN NOT %s THEN %s END, %s, %s", l.send, empty, l.send, l.hash, norm, title)
	return "SELECT k.place, f.row_key, f.keep, " + body +
		", f.source, l.source_hash, l.text_hash, l.norm_hash, l.vector_hash, l.generation, l.version, l.skipped, l.skipped_at, " +
		l.stored + more +
		"\nFROM " + list +
		"\nLEFT JOIN LATERAL (SELECT " + strings.Join(inner, ", ") + " FROM " + source(p) + " WHERE " + b.matchSource() +
		which + " LIMIT 1) AS f ON true" +
		fmt.Sprintf("\nLEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.norm_hash, g.vector_hash, g.generation,"+
			" g.xmin::text AS version, g.skipped, CASE WHEN g.skipped IS NOT NULL THEN g.lsn END AS skipped_at"+
			" FROM embedsidecar.ledger AS g"+
			" WHERE g.pipeline_id = %d AND g.row_key = k.row_key%s OFFSET 0) AS l ON true", p.ID, which) + l.join +
		"\nWHERE true" + sameTables(p) + "\nORDER BY k.place"
}

// Read looks at the rows of keys, each with its ledger entry in one snapshot, and as many in one statement as can be
// read in time. It returns one row per key, in order. Texts are read up to so many bytes, of all rows together or with
// chunks of each. It returns ErrSplit.
func (t *Table) Read(ctx context.Context, keys []string, texts int) ([]Row, error) {
	if len(keys) <= 1 {
		return t.readBy(ctx, t.db, keys, texts)
	}
	found := make([]Row, 0, len(keys))
	for len(found) < len(keys) {
		var page []Row
		rest := keys[len(found):]
		err := t.pager.page(ctx, len(rest), 0, func(tx pgx.Tx, n int) (err error) {
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

func (t *Table) readBy(ctx context.Context, db database.Reader, keys []string, texts int) ([]Row, error) {
	args, err := t.sql.read.args(t.p, keys, values{"texts": texts})
	if err != nil {
		return nil, err
	}
	found := make([]Row, len(keys))
	err = eachLine(ctx, db, readFormats, t.sql.read, args, func(raw [][]byte) error { return t.scan(raw, keys, found) })
	return found, wrap.Errorf(err, "read %d rows of %s", len(keys), t.p.Source())
}

// scan fills the row that a result line is about. The raw values live only until the next line.
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

// scanSource fills in what a result line says of the source row.
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
	if t.p.WatchAll { // no column stands for the text
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

// IsKey reports whether a key can be read as one of the table.
func (t *Table) IsKey(ctx context.Context, key string) bool {
	args, err := t.sql.spell.args(t.p, []string{key}, nil)
	if err != nil {
		return false
	}
	_, err = t.db.Exec(ctx, t.sql.spell.sql, args...)
	return Fault(err) != database.Data
}

// OfSomeRow reports whether a statement that reads rows failed for one of them: without any row it does not fail.
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

// Vectors returns the vectors that rows have now, as they are stored, by the place of their key; with chunks those of
// the first of each row. It returns ErrSplit.
func (t *Table) Vectors(ctx context.Context, keys []string) (map[int][]float32, error) {
	s := t.stored()
	args, err := s.args(t.p, keys, nil)
	if err != nil {
		return nil, err
	}
	found := map[int][]float32{}
	err = eachVector(ctx, t.db, t.p, s, args, len(keys), func(place int, vector []float32) error {
		found[place] = vector
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
