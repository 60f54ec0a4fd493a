package worker

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// deepChunk is a stored chunk with everything.
type deepChunk struct {
	chunk.Chunk
	text   *string
	hash   []byte
	vector []float32
}

// embedChunkSample compares all chunks of some rows with the rows' texts, and with what the model makes of them now.
func (w *Worker) embedChunkSample(ctx context.Context, report *Report, keys []string) error {
	for _, key := range keys {
		var rows []row
		var stored []deepChunk
		err := database.UntilUnlocked(ctx, func() (err error) {
			if rows, err = w.read(ctx, w.o.DB, []string{key}, maxChunked); err == nil {
				stored, err = w.deepChunks(ctx, key)
			}
			return err
		})
		if w.ofSomeRow(ctx, err) { // since it was drawn
			report.refuse(key, err)
			continue
		}
		if err != nil {
			return err
		}
		r := &rows[0]
		if !r.wanted() || r.leftOut() {
			continue // changed meanwhile
		}
		if len(stored) == 0 {
			continue
		}
		report.Sampled++
		texts := make([]string, len(stored))
		for no, c := range stored {
			if problem := c.problem(r.text); problem != "" {
				report.Stale++
				w.differs(report, key, fmt.Sprintf("chunk %d %s", no, problem))
				texts = nil
				break
			}
			texts[no] = c.Embedded(r.text)
		}
		for at := 0; at < len(texts); at += w.o.BatchRows {
			end := min(at+w.o.BatchRows, len(texts))
			results, err := w.o.Service.Anew(ctx, texts[at:end])
			if err != nil {
				return err
			}
			for i, result := range results {
				if result.Vector == nil || !w.same(stored[at+i].vector, result.Vector) {
					report.Differ++
					w.differs(report, key, fmt.Sprintf("chunk %d has another vector than the model gives now", at+i))
				}
			}
		}
	}
	return nil
}

// problem tells in what a stored chunk is not a piece of its row's text, or "".
func (c deepChunk) problem(text string) string {
	if c.Start < 0 || c.Start >= c.End || c.End > len(text) {
		return fmt.Sprintf("is bytes %d to %d of a text of %d", c.Start, c.End, len(text))
	}
	if hash := pipeline.TextHash(c.Embedded(text)); len(c.hash) != sha256.Size || hash != [sha256.Size]byte(c.hash) {
		return "was made of another text"
	}
	if c.text != nil && *c.text != text[c.Start:c.End] {
		return "has another text stored than its place says"
	}
	return ""
}

func (w *Worker) deepChunks(ctx context.Context, key string) ([]deepChunk, error) {
	args, err := keyArrays(w.o.Pipeline, []string{key})
	if err != nil {
		return nil, err
	}
	rows, err := w.o.DB.Query(ctx, w.sql.chunks.deep, args...)
	if err != nil {
		return nil, err
	}
	var chunks []deepChunk
	var c deepChunk
	_, err = pgx.ForEachRow(rows, []any{&c.Start, &c.End, &c.Context, &c.text, &c.hash}, func() error {
		chunks = append(chunks, c)
		c = deepChunk{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	n := 0
	err = w.eachVector(ctx, w.sql.chunks.all, args, func(_ int, vector []float32) error {
		if n < len(chunks) {
			chunks[n].vector = w.o.Pipeline.Stored.Canonical(vector)
		}
		n++
		return nil
	})
	if err == nil && n != len(chunks) {
		err = errMoved
	}
	return chunks, err
}
