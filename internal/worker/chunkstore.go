package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// chunkStatements are those of an embedding table of chunks.
type chunkStatements struct {
	stored  string // what is stored of some keys, without vectors
	vectors string // vectors by key, number and hash
	known   string // vectors by hash; "" when there is no index for it
	shift   string // new places in the text for chunks that keep their number and their vector
	put     string // chunks with their vectors
	end     string // take away what is behind the last chunk of some keys
	deep    string // everything of some keys but the vectors, to compare
	all     string // all vectors of some keys, in the order of deep
}

func (s *statements) buildChunks(p *pipeline.Pipeline, list func(...string) string, names []string) {
	columns, values, respell := make([]string, len(p.Key)), make([]string, len(p.Key)), make([]string, len(p.Key))
	for i, k := range p.Key {
		columns[i], values[i] = ident(k.Name), k.Value(names[i])
		respell[i] = columns[i] + " = excluded." + columns[i]
	}
	keys, match := strings.Join(columns, ", "), p.MatchKey("d", names)
	from := func(more ...string) string {
		return " FROM " + list(more...) + " JOIN " + p.Into() + " AS d ON " + match
	}
	text := "coalesce(k.chunk_text, d.chunk_text)"
	if p.Chunking.NoText {
		text = "NULL"
	}
	s.chunks = chunkStatements{
		stored: "SELECT k.place, d.chunk_no, d.start_byte, d.end_byte, d.generation, d.text_hash, num_nonnulls(d.chunk_text) = 1, " +
			p.KeyExpression("d") + " <> k.row_key" + from("row_key text") +
			" WHERE d.chunk_no >= 0 ORDER BY k.place, d.chunk_no",
		vectors: "SELECT k.place, d.embedding" + from("chunk_no integer", "text_hash bytea") +
			" AND d.chunk_no = k.chunk_no AND d.text_hash = k.text_hash",
		shift: "UPDATE " + p.Into() + " AS d SET start_byte = k.start_byte, end_byte = k.end_byte, chunk_text = " + text +
			fmt.Sprintf(", generation = %d FROM ", p.Generation) + list("chunk_no integer", "text_hash bytea",
			"start_byte integer", "end_byte integer", "chunk_text text") +
			" WHERE " + match + " AND d.chunk_no = k.chunk_no AND d.text_hash = k.text_hash",
		put: "INSERT INTO " + p.Into() + " AS d (" + keys +
			", chunk_no, generation, text_hash, embedded_at, start_byte, end_byte, context, chunk_text, embedding) SELECT " +
			strings.Join(values, ", ") + fmt.Sprintf(
			", k.chunk_no, %d, k.text_hash, now(), k.start_byte, k.end_byte, nullif(k.context, ''), k.chunk_text, %s FROM ",
			p.Generation, p.ToStored("k.vector")) +
			list("chunk_no integer", "text_hash bytea", "start_byte integer", "end_byte integer", "context text",
				"chunk_text text", "vector "+p.VectorType()) +
			" ON CONFLICT (" + keys + ", chunk_no) DO UPDATE SET " + strings.Join(respell, ", ") +
			", generation = excluded.generation, text_hash = excluded.text_hash," +
			" embedded_at = excluded.embedded_at, start_byte = excluded.start_byte, end_byte = excluded.end_byte, context = excluded.context," +
			" chunk_text = excluded.chunk_text, embedding = excluded.embedding",
		end: "DELETE FROM " + p.Into() + " AS d USING " + list("chunks integer") + " WHERE " + match +
			" AND (d.chunk_no >= k.chunks OR d.chunk_no < 0)",
		deep: "SELECT coalesce(d.start_byte, 0), coalesce(d.end_byte, 0), coalesce(d.context, ''), d.chunk_text, d.text_hash" + from() + " ORDER BY k.place, d.chunk_no",
		all:  "SELECT k.place, d.embedding" + from() + " ORDER BY k.place, d.chunk_no",
	}
	if p.HashIndexed {
		// Only rows in the ledger are known to be ours.
		s.chunks.known = "SELECT h.place, f.embedding FROM unnest($1::bytea[]) WITH ORDINALITY AS h (text_hash, place) CROSS JOIN LATERAL (SELECT d.embedding FROM " + p.Into() +
			" AS d WHERE d.text_hash = h.text_hash AND EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = " +
			fmt.Sprint(p.ID) +
			" AND l.row_key = " + p.KeyExpression("d") + " AND l.text_hash IS NOT NULL OFFSET 0) LIMIT 1) AS f"
	}
}

// matchStored finds pieces whose vectors are stored for the same row: where they were, or elsewhere.
func (w *Worker) matchStored(ctx context.Context, items []item) error {
	var (
		keys   []string
		owners []*item
	)
	for i := range items {
		// What somebody else stored says nothing about the text.
		if it := &items[i]; it.action == vectorIn && it.row.ledger && it.row.ledgerText != nil {
			keys, owners = append(keys, it.task.RowKey), append(owners, it)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	args, err := keyArrays(w.o.Pipeline, keys)
	if err != nil {
		return err
	}
	rows, err := w.o.DB.Query(ctx, w.sql.chunks.stored, append(args, keys)...)
	if err != nil {
		return fmt.Errorf("read stored chunks: %w", err)
	}
	var (
		place      int
		start, end *int
		hash       []byte
		c          storedChunk
	)
	stored := make([][]storedChunk, len(owners))
	_, err = pgx.ForEachRow(rows, []any{&place, &c.no, &start, &end, &c.generation, &hash, &c.text, &c.respell},
		func() error {
			if len(hash) != sha256.Size {
				return nil
			}
			c.hash, c.start, c.end = [sha256.Size]byte(hash), -1, -1
			if start != nil && end != nil {
				c.start, c.end = *start, *end
			}
			stored[place-1] = append(stored[place-1], c)
			return nil
		})
	if err != nil {
		return fmt.Errorf("read stored chunks: %w", err)
	}
	for i, it := range owners {
		it.match(stored[i])
	}
	return nil
}

// match gives each piece a stored chunk with its hash, first the one of its own number. No two get the same.
func (it *item) match(stored []storedChunk) {
	free := map[[sha256.Size]byte][]*storedChunk{}
	for i := range stored {
		s := &stored[i]
		if s.no < len(it.pieces) && it.pieces[s.no].hash == s.hash {
			it.pieces[s.no].from = s
			continue
		}
		free[s.hash] = append(free[s.hash], s)
	}
	for i := range it.pieces {
		if p := &it.pieces[i]; p.from == nil && len(free[p.hash]) > 0 {
			p.from, free[p.hash] = free[p.hash][0], free[p.hash][1:]
		}
	}
}

// reuseChunks fills in vectors that other rows have, or that are remembered.
func (w *Worker) reuseChunks(ctx context.Context, items []item) error {
	wanted := map[[sha256.Size]byte][]*piece{}
	var hashes [][]byte
	for i := range items {
		for k := range items[i].pieces {
			p := &items[i].pieces[k]
			if !p.unknown() {
				continue
			}
			if items[i].row.anew() {
				w.o.Service.Forget(p.hash)
				continue
			}
			if _, ok := w.o.Service.Cached(p.hash); ok {
				continue // the service answers it
			}
			if wanted[p.hash] == nil {
				hashes = append(hashes, p.hash[:])
			}
			wanted[p.hash] = append(wanted[p.hash], p)
		}
	}
	if len(hashes) == 0 || w.sql.chunks.known == "" {
		return nil
	}
	err := w.eachVector(ctx, w.sql.chunks.known, []any{hashes}, func(place int, vector []float32) error {
		if place < 1 || place > len(hashes) {
			return fmt.Errorf("place %d of %d", place, len(hashes))
		}
		for _, p := range wanted[[sha256.Size]byte(hashes[place-1])] {
			p.vector = vector
			w.stats.Reused.Add(1)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for known chunks: %w", err)
	}
	return nil
}

// eachVector runs a query for places and stored vectors and calls f for each, with what may be sent again to store
// the same.
func (w *Worker) eachVector(ctx context.Context, sql string, args []any,
	f func(place int, vector []float32) error,
) error {
	formats := pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}
	rows, err := w.o.DB.Query(ctx, sql, append([]any{formats}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	stored := w.o.Pipeline.Stored
	for rows.Next() {
		raw := rows.RawValues()
		place, err := strconv.Atoi(string(raw[0]))
		if err != nil {
			return fmt.Errorf("place %q", raw[0])
		}
		if raw[1] == nil {
			continue // somebody's own table may allow that, and somebody may have done it
		}
		vector, err := stored.ParseBinary(raw[1])
		if err != nil {
			return err
		}
		if err := f(place, stored.Given(vector)); err != nil {
			return err
		}
	}
	return rows.Err()
}

// errMoved means that stored chunks are no longer what they were when they were read. It counts as a conflict: a new
// look helps.
var errMoved = errors.New("stored chunks changed meanwhile")

// fetchMoved reads the vectors of pieces that are stored under another number.
func (w *Worker) fetchMoved(ctx context.Context, items []item) error {
	var (
		keys   []string
		nos    []int
		hashes [][]byte
		moved  []*piece
	)
	for i := range items {
		for k := range items[i].pieces {
			if p := &items[i].pieces[k]; items[i].action == vectorIn && p.from != nil && !p.stays && p.vector == nil {
				keys, nos = append(keys, items[i].task.RowKey), append(nos, p.from.no)
				hashes, moved = append(hashes, p.hash[:]), append(moved, p)
			}
		}
	}
	if len(moved) == 0 {
		return nil
	}
	args, err := keyArrays(w.o.Pipeline, keys)
	if err != nil {
		return err
	}
	err = w.eachVector(ctx, w.sql.chunks.vectors, append(args, nos, hashes), func(place int, vector []float32) error {
		if place < 1 || place > len(moved) {
			return fmt.Errorf("place %d of %d", place, len(moved))
		}
		moved[place-1].vector = vector
		return nil
	})
	for _, p := range moved {
		if p.vector == nil {
			err = errors.Join(err, errMoved)
			break
		}
	}
	if err != nil {
		return fmt.Errorf("read moved chunks: %w", err)
	}
	return nil
}

// chunkWindow is how many chunks go into one statement.
const chunkWindow = 500

// writeChunks brings the chunks of rows up to date: what keeps its number and text keeps its vector, everything else
// is written over what has the number now, and what is behind the last chunk goes.
func (w *Worker) writeChunks(ctx context.Context, tx pgx.Tx, items []*item) error {
	var shifted, put chunkRows
	ends := make([]int, len(items))
	for i, it := range items {
		ends[i] = len(it.pieces)
		for no := range it.pieces {
			p := &it.pieces[no]
			if !p.stays {
				put.add(it, no, !w.o.Pipeline.Chunking.NoText)
				it.written++
			} else if f := p.from; f.start != p.Start || f.end != p.End || f.generation != w.o.Pipeline.Generation ||
				f.text == w.o.Pipeline.Chunking.NoText {
				shifted.add(it, no, !w.o.Pipeline.Chunking.NoText && !f.text)
			}
		}
	}
	args, err := keyArrays(w.o.Pipeline, keysOf(items))
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, w.sql.chunks.end, append(args, ends)...); err != nil {
		return err
	}
	for at := 0; at < len(shifted.keys); at += chunkWindow {
		r := shifted.window(at)
		args, err := keyArrays(w.o.Pipeline, r.keys)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, w.sql.chunks.shift, append(args, r.nos, r.hashes, r.starts, r.ends, r.texts)...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != int64(len(r.keys)) {
			return errMoved
		}
	}
	for at := 0; at < len(put.keys); at += chunkWindow {
		r := put.window(at)
		args, err := keyArrays(w.o.Pipeline, r.keys)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, w.sql.chunks.put, append(args, r.nos, r.hashes, r.starts, r.ends, r.contexts, r.texts,
			parameter(w.o.Pipeline, r.vectors))...); err != nil {
			return err
		}
	}
	return nil
}

// chunkRows are rows of an embedding table, column by column.
type chunkRows struct {
	keys              []string
	nos, starts, ends []int
	hashes            [][]byte
	contexts          []string
	texts             []*string
	vectors           [][]float32
}

func (r *chunkRows) add(it *item, no int, text bool) {
	p := &it.pieces[no]
	r.keys, r.nos = append(r.keys, it.task.RowKey), append(r.nos, no)
	r.starts, r.ends = append(r.starts, p.Start), append(r.ends, p.End)
	r.hashes, r.contexts, r.vectors = append(r.hashes, p.hash[:]), append(r.contexts, p.Context),
		append(r.vectors, p.vector)
	var stored *string
	if text {
		piece := it.row.text[p.Start:p.End]
		stored = &piece
	}
	r.texts = append(r.texts, stored)
}

// window returns up to chunkWindow rows.
func (r *chunkRows) window(at int) chunkRows {
	end := min(at+chunkWindow, len(r.keys))
	return chunkRows{
		r.keys[at:end], r.nos[at:end], r.starts[at:end], r.ends[at:end], r.hashes[at:end], r.contexts[at:end],
		r.texts[at:end], r.vectors[at:end],
	}
}
