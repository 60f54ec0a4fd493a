package worker

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// vectors are known vectors by text hash.
type vectors map[[32]byte][]float32

// reuse fills in vectors from the cache, or from other rows of the pipeline or of another pipeline with the same
// embedder.
func (w *Worker) reuse(ctx context.Context, items []item) error {
	if d := items[0].task.Lease.Direct; d != nil { // the stream waits
		return limited(ctx, d, func(ctx context.Context) error { return w.reuseNow(ctx, items) })
	}
	return w.reuseNow(ctx, items)
}

func (w *Worker) reuseNow(ctx context.Context, items []item) error {
	w.keepGone(ctx, items)
	wanted := map[[32]byte]bool{} // true: no row of the pipeline has the text
	for i := range items {
		it := &items[i]
		if it.action != vectorIn {
			continue
		}
		if it.row.Anew() {
			w.o.Service.Forget(ctx, it.row.TextHash)
			continue
		}
		if vector, ok := w.o.Service.Cached(ctx, it.row.TextHash); ok {
			it.vector = vector
			w.o.Service.Reused(1)
			w.stats.Known.Add(1)
			continue
		}
		wanted[it.row.TextHash] = it.row.New
	}
	if err := w.batched(ctx, items, wanted); err != nil {
		return err
	}
	for i := range items {
		if it := &items[i]; it.doubted != nil { // its vector would be given to other rows
			delete(wanted, [32]byte(it.doubted))
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	known, err := w.known(ctx, wanted, w.held(items))
	if err != nil {
		if rows.Fault(err) != database.Data {
			return fmt.Errorf("look for known vectors: %w", err)
		}
		// The ledger may contain invalid keys until a scan has removed them.
		w.o.Log.DebugContext(ctx, "known vectors not read", "pipeline", w.o.Pipeline.Name, "error", quiet(err))
	}
	for i := range items {
		it := &items[i]
		if vector, ok := known[it.row.TextHash]; ok && it.action == vectorIn && it.vector == nil && !it.row.Anew() {
			it.vector = vector
			w.o.Service.Reused(1)
			w.stats.Known.Add(1)
		}
	}
	return nil
}

// keepGone caches the vectors of removed rows before they are deleted: if a key changed, a later batch brings the same
// text under the new key. Without them the text is only embedded again. A column keeps its vector, but its ledger entry
// is deleted, even if another row has the key now.
func (w *Worker) keepGone(ctx context.Context, items []item) {
	var found []knownVector
	for i := range items {
		it, r := &items[i], &items[i].row
		switch {
		case it.nobody || r.LedgerText == nil:
		case w.o.Pipeline.InSource() && (it.action == gone || w.moved(it)):
			w.left.note([32]byte(r.LedgerText), r.LedgerVector)
		case it.action == gone && r.Stored && !w.o.Pipeline.InSource() && !w.o.Pipeline.Stored.Lossy():
			found = append(found, knownVector{Key: it.task.RowKey, TextHash: r.LedgerText, VectorHash: r.LedgerVector})
		}
	}
	known, err := fetch(ctx, found, w.table.Vectors)
	if err != nil {
		w.o.Log.DebugContext(ctx, "vectors of gone rows not read", "pipeline", w.o.Pipeline.Name, "error", quiet(err))
	}
	for hash, vector := range known {
		w.o.Service.Remember(ctx, hash, vector)
	}
}

// moved reports whether a row's column holds a vector that is not in the ledger: its key has changed.
func (w *Worker) moved(it *item) bool {
	return w.o.Pipeline.InSource() && it.action == vectorIn && it.row.Stored && !w.table.Holds(&it.row)
}

// held returns the moved rows by text hash.
func (w *Worker) held(items []item) map[[32]byte]knownVector {
	held := map[[32]byte]knownVector{}
	for i := range items {
		it := &items[i]
		if w.moved(it) {
			text := it.row.TextHash
			held[text] = knownVector{Key: it.task.RowKey, TextHash: text[:], VectorHash: it.row.StoredHash}
		}
	}
	return held
}

// own redirects vectors to the moved rows that hold them, as after a change of keys: the row in the ledger was removed,
// or its ledger entry was.
func (w *Worker) own(found []knownVector, held map[[32]byte]knownVector) []knownVector {
	for i := range found {
		text := [32]byte(found[i].TextHash)
		if at, ok := held[text]; ok && bytes.Equal(at.VectorHash, found[i].VectorHash) {
			found[i] = at
			delete(held, text)
		}
	}
	for text, at := range held {
		if bytes.Equal(at.VectorHash, w.left.vectorOf(text)) {
			found = append(found, at)
		}
	}
	return found
}

// left holds the vector hashes of removed rows by text hash: of the last few thousand rows, more than are queued
// together.
type left struct {
	mu     sync.Mutex
	newest map[[32]byte][]byte
	before map[[32]byte][]byte
}

func (l *left) note(text [32]byte, vector []byte) {
	const most = 4096
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest == nil || len(l.newest) >= most {
		l.newest, l.before = map[[32]byte][]byte{}, l.newest
	}
	l.newest[text] = vector
}

// vectorOf returns the hash of a text's vector; nil: unknown.
func (l *left) vectorOf(text [32]byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hash, ok := l.newest[text]; ok {
		return hash
	}
	return l.before[text]
}

// known finds vectors of texts in the pipeline's own destination, then in those of its siblings.
func (w *Worker) known(ctx context.Context, wanted map[[32]byte]bool, held map[[32]byte]knownVector) (vectors, error) {
	p := w.o.Pipeline
	var found []knownVector
	asked := maps.Clone(wanted)
	maps.DeleteFunc(asked, func(_ [32]byte, isNew bool) bool { return isNew })
	if len(asked) > 0 {
		var err error
		if found, err = w.store.known(ctx, hashesOf(asked)); err != nil {
			return nil, err
		}
	}
	found = w.own(found, held)
	known, missing := vectors{}, maps.Clone(wanted)
	take := func(from *pipeline.Pipeline, found []knownVector,
		read func(context.Context, []string) (map[int][]float32, error),
	) error {
		got, err := fetch(ctx, found, read)
		for hash, vector := range got {
			delete(missing, hash)
			if from.Stored.Lossy() { // less precise than the model's: usable in this destination only
				known[hash] = from.Stored.Given(vector)
				continue
			}
			known[hash] = vector
			w.o.Service.Remember(ctx, hash, vector)
		}
		return err
	}
	if err := take(p, found, w.table.Vectors); err != nil {
		return nil, err
	}
	var siblings map[int32]*pipeline.Pipeline
	if w.o.Siblings != nil && len(missing) > 0 {
		siblings = w.o.Siblings()
	}
	maps.DeleteFunc(siblings, func(_ int32, p *pipeline.Pipeline) bool { return p.Stored.Lossy() })
	if len(siblings) == 0 {
		return known, nil
	}
	ids := slices.Collect(maps.Keys(siblings))
	found, err := w.store.elsewhere(ctx, ids, hashesOf(missing))
	if err != nil {
		return nil, err
	}
	of := map[int32][]knownVector{}
	for _, at := range found {
		of[at.Pipeline] = append(of[at.Pipeline], at)
	}
	for id, its := range of {
		from := siblings[id]
		err := take(from, its, func(ctx context.Context, keys []string) (map[int][]float32, error) {
			return w.store.vectorsOf(ctx, from, keys)
		})
		if err != nil { // a sibling's table problem is reported by the sibling
			if ctx.Err() != nil {
				return nil, err
			}
			w.o.Log.DebugContext(ctx, "vectors of another pipeline not read", "pipeline", from.Name, "error", quiet(err))
		}
	}
	return known, nil
}

func hashesOf(texts map[[32]byte]bool) [][]byte {
	hashes := make([][]byte, 0, len(texts))
	for hash := range texts {
		hashes = append(hashes, hash[:])
	}
	return hashes
}

// fetch reads vectors from the given places, as stored. It leaves out a vector that is not the one recorded: it says
// nothing about the text.
func fetch(ctx context.Context, found []knownVector, read func(context.Context, []string) (map[int][]float32, error),
) (vectors, error) {
	if len(found) == 0 {
		return nil, nil
	}
	keys := lists.Map(found, func(v knownVector) string { return v.Key })
	stored, err := read(ctx, keys)
	if err != nil {
		return nil, err
	}
	got := vectors{}
	for at, vector := range stored {
		if pipeline.VectorHash(vector) == [pipeline.VectorHashSize]byte(found[at].VectorHash) {
			got[[32]byte(found[at].TextHash)] = vector
		}
	}
	return got, nil
}
