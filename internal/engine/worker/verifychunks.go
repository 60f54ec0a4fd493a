package worker

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// embedChunkSample compares all chunks of some rows with the rows' texts and with the model's current vectors.
func (w *Worker) embedChunkSample(ctx context.Context, report *Report, keys []string) error {
	for _, key := range keys {
		var found []rows.Row
		var stored []rows.DeepChunk
		err := database.UntilUnlocked(ctx, func() (err error) {
			if found, err = w.table.Read(ctx, []string{key}, maxChunked); err == nil {
				stored, err = w.chunks.Deep(ctx, key)
			}
			return err
		})
		if w.table.OfSomeRow(ctx, err) { // began to fail after it was drawn
			report.refuse(key, err)
			continue
		}
		if err != nil {
			return err
		}
		r := &found[0]
		if !r.Wanted() || r.LeftOut() || r.Ignored() {
			continue // changed meanwhile
		}
		if len(stored) == 0 {
			continue
		}
		report.Sampled++
		texts := make([]string, len(stored))
		for no, c := range stored {
			if problem := problemOf(&c, r.Text); problem != "" {
				report.Stale++
				w.found(report, key, fmt.Sprintf("chunk %d %s", no, problem), true)
				texts = nil
				break
			}
			texts[no] = c.Embedded(r.Text)
		}
		for at := 0; at < len(texts); at += w.o.BatchRows {
			end := min(at+w.o.BatchRows, len(texts))
			results, err := w.o.Service.Anew(ctx, texts[at:end])
			if err != nil {
				return err
			}
			for i, result := range results {
				if !unanswered(&result) && (result.Vector == nil || !w.same(stored[at+i].Vector, result.Vector)) {
					report.Differ++
					w.found(report, key, fmt.Sprintf("chunk %d has another vector than the model gives now", at+i), true)
				}
			}
		}
	}
	return nil
}

// problemOf describes why a stored chunk does not match its row's text, or returns "".
func problemOf(c *rows.DeepChunk, text string) string {
	if c.Start < 0 || c.Start >= c.End || c.End > len(text) {
		return fmt.Sprintf("is bytes %d to %d of a text of %d", c.Start, c.End, len(text))
	}
	if hash := pipeline.TextHash(c.Embedded(text)); len(c.Hash) != sha256.Size || hash != [sha256.Size]byte(c.Hash) {
		return "was made of another text"
	}
	if c.Text != nil && *c.Text != c.Of(text) {
		return "has another text stored than its place says"
	}
	return ""
}
