package rows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Chunks is an embedding table of chunks: each source row has a list of vectors with their positions in the text.
type Chunks struct {
	embeddingTable
	db     database.DB
	chunks chunkStatements
}

type chunkStatements struct {
	stored  statement // the stored chunks of some keys, without vectors
	vectors statement // vectors by key, number and hash
	known   statement // vectors by hash; empty without an index for it
	shift   statement // new positions for chunks that keep number and vector
	put     statement // chunks with their vectors
	end     statement // delete the chunks after the last one of some keys
	deep    statement // everything of some keys except the vectors, for comparison
	all     statement // all vectors of some keys, ordered like deep
}

// DeepChunk is a complete stored chunk.
type DeepChunk struct {
	chunk.Chunk
	Text   *string
	Hash   []byte
	Vector []float32
}

// chunkPlaces are the arrays shared by the chunk statements.
var chunkPlaces = []array{
	chunkNumbers, textHashes, {"start_byte", "integer"}, {"end_byte", "integer"},
}

func newChunks(p *pipeline.Pipeline, db database.DB) *Chunks {
	from := func(b *builder, more ...array) string {
		return " FROM " + b.list(more...) + " JOIN " + p.Into() + " AS d ON " + b.match("d") + sameInto(p)
	}
	text := "coalesce(k.chunk_text, d.chunk_text)"
	if p.Chunking.NoText {
		text = "NULL"
	}
	const asked = " AND d.chunk_no = k.chunk_no AND d.text_hash = k.text_hash"
	c := &Chunks{*newEmbeddingTable(p), db, chunkStatements{
		stored: build(p, func(b *builder) string {
			return "SELECT k.place, d.chunk_no, d.start_byte, d.end_byte, d.generation, d.text_hash," +
				" num_nonnulls(d.chunk_text) = 1, " + p.KeyExpression("d") + " <> k.row_key" + from(b, keysAsTheyAre) +
				" WHERE d.chunk_no >= 0 ORDER BY k.place, d.chunk_no"
		}),
		vectors: build(p, func(b *builder) string {
			return "SELECT k.place, d.embedding" + from(b, chunkNumbers, textHashes) + asked
		}),
		shift: build(p, func(b *builder) string {
			return "UPDATE " + p.Into() + " AS d SET start_byte = k.start_byte, end_byte = k.end_byte, chunk_text = " + text +
				fmt.Sprintf(", generation = %d FROM ", p.Generation) +
				b.list(append(slices.Clip(chunkPlaces), array{"chunk_text", "text"})...) +
				" WHERE " + b.match("d") + asked
		}),
		put: build(p, func(b *builder) string {
			return insert(p, "chunk_no, generation, text_hash, embedded_at, start_byte, end_byte, context, chunk_text,"+
				" embedding", fmt.Sprintf("k.chunk_no, %d, k.text_hash, now(), k.start_byte, k.end_byte,"+
				" nullif(k.context, ''), k.chunk_text, %s", p.Generation, p.ToStored("k.vector")),
				b.list(append(slices.Clip(chunkPlaces), array{"context", "text"},
					array{"chunk_text", "text"}, b.vectors())...),
				"generation = excluded.generation, text_hash = excluded.text_hash, embedded_at = excluded.embedded_at,"+
					" start_byte = excluded.start_byte, end_byte = excluded.end_byte, context = excluded.context,"+
					" chunk_text = excluded.chunk_text, embedding = excluded.embedding")
		}),
		end: build(p, func(b *builder) string {
			return "DELETE FROM " + p.Into() + " AS d USING " + b.list(array{"chunks", "integer"}) + " WHERE " + b.match("d") +
				" AND (d.chunk_no >= k.chunks OR d.chunk_no < 0)"
		}),
		deep: build(p, func(b *builder) string {
			return "SELECT coalesce(d.start_byte, 0), coalesce(d.end_byte, 0), coalesce(d.context, ''), d.chunk_text," +
				" d.text_hash" + from(b) + " ORDER BY k.place, d.chunk_no"
		}),
		all: build(p, func(b *builder) string {
			return "SELECT k.place, d.embedding" + from(b) + " ORDER BY k.place, d.chunk_no"
		}),
	}}
	if p.HashIndexed {
		// Only rows in the ledger are known to be ours.
		c.chunks.known = build(p, func(b *builder) string {
			return "SELECT h.place, f.embedding FROM unnest(" + b.param(textHashes.name) + "::bytea[])" +
				" WITH ORDINALITY AS h (text_hash, place) CROSS JOIN LATERAL (SELECT d.embedding FROM " + p.Into() +
				" AS d WHERE d.text_hash = h.text_hash" + sameInto(p) + " AND EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = " +
				fmt.Sprint(p.ID) + " AND l.row_key = " + p.KeyExpression("d") +
				" AND l.text_hash IS NOT NULL OFFSET 0) LIMIT 1) AS f"
		})
	}
	return c
}

// readParts reads each text up to a byte limit; longer ones are read one at a time. The stored hash of a row is one
// hash over the hashes of all its chunks.
func (c *Chunks) readParts(b *builder) readParts {
	l := readParts{
		text: b.p.TextExpression(), title: fmt.Sprintf("left(%s, %d)", b.p.ContextExpression(), maxTitle),
		send: "octet_length(f.body) <= " + b.limit(),
		hash: "CASE WHEN pg_client_encoding() <> 'SQL_ASCII' THEN " +
			b.p.Chunking.ChunkedHashExpression("f.body", "f.title") + " END",
	}
	if b.p.Ignore != "" {
		l.norm = b.p.Chunking.ChunkedHashExpression(b.p.Normalised("f.body"), "f.title")
	}
	l.stored, l.join = c.joined("sha256(string_agg(e.text_hash, ''::bytea ORDER BY e.chunk_no)) AS text_hash,"+
		" CASE WHEN min(e.generation) = max(e.generation) THEN min(e.generation) ELSE -1 END AS generation", "")
	return l
}

func (*Chunks) holds(r *Row) bool {
	return bytes.Equal(r.StoredHash[:pipeline.VectorHashSize], r.LedgerVector)
}

// VectorHash covers the hashes of all chunks.
func (*Chunks) VectorHash(w *Write) (hash [pipeline.VectorHashSize]byte) {
	h := sha256.New()
	for i := range w.Chunks {
		_, _ = h.Write(w.Chunks[i].Hash[:])
	}
	copy(hash[:], h.Sum(nil))
	return hash
}

// Chunks returns the receiver.
func (c *Chunks) Chunks() *Chunks { return c }

func (*Chunks) atOnce() statement { return statement{} }

// Stored returns the stored chunks of rows, in key order. It returns ErrSplit.
func (c *Chunks) Stored(ctx context.Context, keys []string) ([][]StoredChunk, error) {
	args, err := c.chunks.stored.args(c.p, keys, nil)
	if err != nil {
		return nil, err
	}
	rows, err := c.db.Query(ctx, c.chunks.stored.sql, args...)
	if err != nil {
		return nil, err
	}
	var (
		place int
		l     storedLine
	)
	stored := make([][]StoredChunk, len(keys))
	_, err = pgx.ForEachRow(rows, []any{&place, &l.no, &l.start, &l.end, &l.generation, &l.hash, &l.text, &l.respell},
		func() error {
			if s, ok := l.chunk(); ok {
				stored[place-1] = append(stored[place-1], s)
			}
			return nil
		})
	return stored, err
}

// storedLine is a result row of the statement stored.
type storedLine struct {
	no            int
	start, end    *int
	generation    int32
	hash          []byte
	text, respell bool
}

// chunk returns the chunk of the line. It returns false if the hash is not ours. A chunk without a position gets -1, so
// that it is written.
func (l *storedLine) chunk() (s StoredChunk, ok bool) {
	if len(l.hash) != sha256.Size {
		return s, false
	}
	s = StoredChunk{
		No: l.no, Start: -1, End: -1, Generation: l.generation, Hash: [sha256.Size]byte(l.hash), HasText: l.text,
		Respell: l.respell,
	}
	if l.start != nil && l.end != nil {
		s.Start, s.End = *l.start, *l.end
	}
	return s, true
}

// Known calls f for each text hash that a stored chunk has, with its vector. It finds none without an index for that.
func (c *Chunks) Known(ctx context.Context, hashes [][]byte, f func(i int, vector []float32)) error {
	if !c.chunks.known.there() {
		return nil
	}
	args, err := c.chunks.known.named(values{textHashes.name: hashes})
	if err != nil {
		return err
	}
	return eachVector(ctx, c.db, c.p, c.chunks.known, args, len(hashes), func(i int, vector []float32) error {
		f(i, c.p.Stored.Given(vector))
		return nil
	})
}

// FetchMoved reads the vectors of moved chunks from their stored chunks; keys are their rows. It returns ErrMoved if
// one is missing.
func (c *Chunks) FetchMoved(ctx context.Context, keys []string, moved []*Chunk) error {
	nos, hashes := make([]int, len(moved)), make([][]byte, len(moved))
	for i, one := range moved {
		nos[i], hashes[i] = one.From.No, one.Hash[:]
	}
	args, err := c.chunks.vectors.args(c.p, keys, values{chunkNumbers.name: nos, textHashes.name: hashes})
	if err != nil {
		return err
	}
	err = eachVector(ctx, c.db, c.p, c.chunks.vectors, args, len(moved), func(i int, vector []float32) error {
		moved[i].Vector = c.p.Stored.Given(vector)
		return nil
	})
	for _, one := range moved {
		if one.Vector == nil {
			return errors.Join(err, ErrMoved)
		}
	}
	return err
}

// Deep returns everything stored for a row, in chunk order.
func (c *Chunks) Deep(ctx context.Context, key string) ([]DeepChunk, error) {
	args, err := c.chunks.deep.args(c.p, []string{key}, nil)
	if err != nil {
		return nil, err
	}
	rows, _ := c.db.Query(ctx, c.chunks.deep.sql, args...)
	var chunks []DeepChunk
	var d DeepChunk
	_, err = pgx.ForEachRow(rows, []any{&d.Start, &d.End, &d.Context, &d.Text, &d.Hash}, func() error {
		d.Between, d.Joined = c.p.Chunking.Between, c.p.Chunking.Joined()
		chunks = append(chunks, d)
		d = DeepChunk{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if args, err = c.chunks.all.args(c.p, []string{key}, nil); err != nil {
		return nil, err
	}
	var vectors [][]float32
	err = eachVector(ctx, c.db, c.p, c.chunks.all, args, 1, func(_ int, vector []float32) error {
		vectors = append(vectors, vector)
		return nil
	})
	if err == nil {
		err = c.fill(chunks, vectors)
	}
	return chunks, err
}

// fill assigns the vectors, read after the chunks. It returns ErrMoved if their number differs.
func (c *Chunks) fill(chunks []DeepChunk, vectors [][]float32) error {
	for i, v := range vectors[:min(len(vectors), len(chunks))] {
		chunks[i].Vector = c.p.Stored.Canonical(c.p.Stored.Given(v))
	}
	if len(vectors) != len(chunks) {
		return ErrMoved
	}
	return nil
}

// chunkWindow is the maximum number of chunks per statement.
const chunkWindow = 500

func (c *Chunks) Write(ctx context.Context, tx pgx.Tx, change *Change, locks *Locks) error {
	if len(change.Write) > 0 {
		if err := c.writeChunks(ctx, tx, change.Write); err != nil {
			return err
		}
	}
	rest := *change
	rest.Write = nil
	return c.embeddingTable.Write(ctx, tx, &rest, locks)
}

// writeChunks updates the chunks of rows.
func (c *Chunks) writeChunks(ctx context.Context, tx pgx.Tx, writes []Write) error {
	steps, err := c.steps(writes)
	if err != nil {
		return err
	}
	return run(ctx, tx, steps)
}

// steps returns the statements that update the chunks of rows. Chunks after the last are deleted, chunks that keep
// number and text keep their vector, and all others overwrite the chunk with their number.
func (c *Chunks) steps(writes []Write) ([]step, error) {
	shifted, put, ends := c.changed(writes)
	args, err := c.chunks.end.args(c.p, keysOf(writes), values{"chunks": ends})
	if err != nil {
		return nil, err
	}
	steps := []step{{sql: c.chunks.end.sql, args: args}}
	for at := 0; at < len(shifted.keys); at += chunkWindow {
		r := shifted.window(at)
		if args, err = c.chunks.shift.args(c.p, r.keys, r.values(c.p)); err != nil {
			return nil, err
		}
		steps = append(steps, step{c.chunks.shift.sql, args, len(r.keys)})
	}
	for at := 0; at < len(put.keys); at += chunkWindow {
		r := put.window(at)
		if args, err = c.chunks.put.args(c.p, r.keys, r.values(c.p)); err != nil {
			return nil, err
		}
		steps = append(steps, step{sql: c.chunks.put.sql, args: args})
	}
	return steps, nil
}

// changed returns the chunks that keep their vector but not their other columns, the chunks to write, and the number of
// chunks of each row.
func (c *Chunks) changed(writes []Write) (shifted, put chunkRows, ends []int) {
	withText := !c.p.Chunking.NoText
	ends = make([]int, len(writes))
	for i := range writes {
		w := &writes[i]
		ends[i] = len(w.Chunks)
		for no := range w.Chunks {
			one := &w.Chunks[no]
			if !one.Stays {
				put.add(w, no, withText)
			} else if f := one.From; f.Start != one.Start || f.End != one.End || f.Generation != c.p.Generation ||
				f.HasText != withText {
				shifted.add(w, no, withText && !f.HasText)
			}
		}
	}
	return shifted, put, ends
}

// chunkRows are rows of an embedding table, as columns.
type chunkRows struct {
	keys              []string
	nos, starts, ends []int
	hashes            [][]byte
	contexts          []string
	texts             []*string
	vectors           [][]float32
}

func (r *chunkRows) add(w *Write, no int, text bool) {
	c := &w.Chunks[no]
	r.keys, r.nos = append(r.keys, w.Key), append(r.nos, no)
	r.starts, r.ends = append(r.starts, c.Start), append(r.ends, c.End)
	r.hashes, r.contexts, r.vectors = append(r.hashes, c.Hash[:]), append(r.contexts, c.Context),
		append(r.vectors, c.Vector)
	var stored *string
	if text {
		own := c.Of(w.Text)
		stored = &own
	}
	r.texts = append(r.texts, stored)
}

// window returns up to chunkWindow rows from an index on.
func (r *chunkRows) window(at int) chunkRows {
	end := min(at+chunkWindow, len(r.keys))
	return chunkRows{
		r.keys[at:end], r.nos[at:end], r.starts[at:end], r.ends[at:end], r.hashes[at:end], r.contexts[at:end],
		r.texts[at:end], r.vectors[at:end],
	}
}

func (r *chunkRows) values(p *pipeline.Pipeline) values {
	return values{
		chunkNumbers.name: r.nos, textHashes.name: r.hashes, "start_byte": r.starts, "end_byte": r.ends,
		"context": r.contexts, "chunk_text": r.texts, "vector": p.Parameter(r.vectors),
	}
}
