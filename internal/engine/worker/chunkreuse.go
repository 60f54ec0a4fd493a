package worker

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

// matchStored finds chunks whose vectors are already stored for the same row, at any number.
func (w *Worker) matchStored(ctx context.Context, items []item) error {
	var (
		keys   []string
		owners []*item
	)
	for i := range items {
		// Chunks stored by others say nothing about the text.
		if it := &items[i]; it.action == vectorIn && it.row.Ledger && it.row.LedgerText != nil {
			keys, owners = append(keys, it.task.RowKey), append(owners, it)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	stored, err := w.chunks.Stored(ctx, keys)
	if err != nil {
		return fmt.Errorf("read stored chunks: %w", err)
	}
	for i, it := range owners {
		it.match(stored[i])
	}
	return nil
}

// match assigns each chunk a distinct stored chunk with its hash, preferring the one with its number.
func (it *item) match(stored []rows.StoredChunk) {
	free := map[[sha256.Size]byte][]*rows.StoredChunk{}
	for i := range stored {
		s := &stored[i]
		if s.No < len(it.chunks) && it.chunks[s.No].Hash == s.Hash {
			it.chunks[s.No].From = s
			continue
		}
		free[s.Hash] = append(free[s.Hash], s)
	}
	for i := range it.chunks {
		if c := &it.chunks[i]; c.From == nil && len(free[c.Hash]) > 0 {
			c.From, free[c.Hash] = free[c.Hash][0], free[c.Hash][1:]
		}
	}
}

// reuseChunks fills in vectors known from other rows or from the cache.
func (w *Worker) reuseChunks(ctx context.Context, items []item) error {
	wanted := map[[sha256.Size]byte][]*rows.Chunk{}
	var hashes [][]byte
	for i := range items {
		for k := range items[i].chunks {
			c := &items[i].chunks[k]
			if !c.Unknown() {
				continue
			}
			if items[i].row.Anew() {
				w.o.Service.Forget(ctx, c.Hash)
				continue
			}
			if _, ok := w.o.Service.Cached(ctx, c.Hash); ok {
				continue // answered by the service's cache
			}
			if wanted[c.Hash] == nil {
				hashes = append(hashes, c.Hash[:])
			}
			wanted[c.Hash] = append(wanted[c.Hash], c)
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	if err := w.batchedChunks(ctx, items, hashes, wanted); err != nil {
		return err
	}
	err := w.chunks.Known(ctx, hashes, func(i int, vector []float32) {
		for _, c := range wanted[[sha256.Size]byte(hashes[i])] {
			if c.Vector != nil {
				continue
			}
			c.Vector = vector
			w.stats.Known.Add(1)
		}
	})
	return wrap.Errorf(err, "look for known chunks")
}

// fetchMoved reads the vectors of chunks that are stored under another number.
func (w *Worker) fetchMoved(ctx context.Context, items []item) error {
	var (
		keys  []string
		moved []*rows.Chunk
	)
	for i := range items {
		for k := range items[i].chunks {
			if c := &items[i].chunks[k]; items[i].action == vectorIn && c.From != nil && !c.Stays && c.Vector == nil {
				keys, moved = append(keys, items[i].task.RowKey), append(moved, c)
			}
		}
	}
	if len(moved) == 0 {
		return nil
	}
	return wrap.Errorf(w.chunks.FetchMoved(ctx, keys, moved), "read moved chunks")
}
