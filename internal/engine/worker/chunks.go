package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Limits for one row of a chunked pipeline in memory.
const (
	// bigText is the largest text, in bytes, read together with other rows; larger ones are read alone.
	bigText = 32 << 10
	// preparedText is the approximate size of texts that are chunked and matched at a time.
	preparedText = 1 << 20
	// maxChunked is the largest text, in bytes, that is chunked; a row with a larger one becomes a dead letter.
	maxChunked = 4 << 20
	// maxChunks is the maximum number of chunks of a row.
	maxChunks = 8192
	// estimatedAround is the assumed number of special tokens if the model does not report it.
	estimatedAround = 8
)

// embedChunks is embedTexts for chunks. It writes a few rows at a time, so that rows with many chunks do not delay the
// others. The texts of large rows are read later.
func (w *Worker) embedChunks(ctx context.Context, items []item, first *room) error {
	first.shrink(textBytes(items) + maxChunked)
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.size(), b.size()) })
	large := slices.IndexFunc(items, func(it item) bool { return it.size() > 0 })
	if large < 0 {
		large = len(items)
	}
	prepared := 0
	for begin := 0; begin < len(items); {
		if begin == prepared && begin < large {
			prepared = textsEnd(items[:large], begin)
			if err := w.prepare(ctx, items[begin:prepared]); err != nil {
				return w.groupFailed(ctx, items[begin:prepared], items[prepared:], err)
			}
		}
		end := begin + 1
		if begin < large {
			end = w.groupEnd(items[:prepared], begin)
		}
		group, rest := items[begin:end], items[end:]
		if begin >= large {
			if err := w.readLarge(ctx, group); err != nil {
				return w.lookFailed(ctx, tasksOf(items[begin:]), err)
			}
			if err := w.prepare(ctx, group); err != nil {
				return w.groupFailed(ctx, group, rest, err)
			}
		}
		begin = end
		err := w.embedUnknown(ctx, group)
		if w.unaffordable(err) {
			if group = affordable(group); len(group) == 0 {
				continue
			}
			err = w.embedUnknown(ctx, group)
		}
		if err != nil {
			return w.groupFailed(ctx, group, rest, err)
		}
		if err := reached(group[0].task, "after-embed"); err != nil {
			return err
		}
		if err := w.finish(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// size returns the size of a text that is not read yet.
func (it *item) size() int {
	if it.action == vectorIn && it.row.LeftOut() {
		return it.row.Bytes
	}
	return 0
}

// textsEnd returns the end of a group of items with about preparedText of text, which are in memory together.
func textsEnd(items []item, begin int) int {
	n := 0
	for i := begin; i < len(items); i++ {
		if n += len(items[i].row.Text); n > preparedText && i > begin {
			return i
		}
	}
	return len(items)
}

// groupEnd returns the end of a group of items with about one batch of chunks to embed.
func (w *Worker) groupEnd(items []item, begin int) int {
	n := 0
	for i := begin; i < len(items); i++ {
		for k := range items[i].chunks {
			if items[i].chunks[k].Unknown() {
				n++
			}
		}
		if n > w.o.BatchRows && i > begin {
			return i
		}
	}
	return len(items)
}

// readLarge reads one item's row again with its whole text, and decides again.
func (w *Worker) readLarge(ctx context.Context, one []item) error {
	found, err := w.look(ctx, []queue.Task{one[0].task}, maxChunked)
	if err != nil {
		return err
	}
	if err := w.decideAll(ctx, found); err != nil {
		return err
	}
	if it := &found[0]; it.size() > 0 {
		it.action, it.err = broken, &embed.TextError{
			Class: embed.Data, Code: "too_long",
			Message: fmt.Sprintf("the text has %d bytes, and at most %d can be chunked", it.row.Bytes, maxChunked),
		}
	}
	one[0] = found[0]
	return nil
}

// prepare chunks the texts of items and finds the chunks with known vectors.
func (w *Worker) prepare(ctx context.Context, items []item) error {
	if err := w.cut(ctx, items); err != nil {
		return embedderError{err}
	}
	if err := w.matchStored(ctx, items); err != nil {
		return err
	}
	return w.reuseChunks(ctx, items)
}

// cut chunks the texts of items that need vectors.
func (w *Worker) cut(ctx context.Context, items []item) error {
	var cutting []*item
	for i := range items {
		if it := &items[i]; it.action == vectorIn {
			cutting = append(cutting, it)
		}
	}
	if len(cutting) == 0 {
		return nil
	}
	err := w.cutItems(ctx, cutting)
	if class, code := embed.Classify(err); err == nil || class != embed.Data {
		return err
	} else if len(cutting) == 1 {
		cutting[0].action, cutting[0].err = broken, &embed.TextError{
			Class: class, Code: code,
			Message: "the embedder could not tokenize this text",
		}
		return nil
	}
	for i := range items {
		if err := w.cut(ctx, items[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) cutItems(ctx context.Context, items []*item) error {
	settings, texts, err := w.tokens(ctx, items)
	if err != nil {
		return err
	}
	for i, it := range items {
		if it.action != vectorIn { // its tokens are not known
			continue
		}
		chunks, err := chunk.Try(settings, texts[2*i], texts[2*i+1])
		switch {
		case err != nil:
			it.action, it.err = broken, &embed.TextError{Class: embed.Data, Code: "not_cut", Message: err.Error()}
		case len(chunks) == 0:
			it.action = empty
		case len(chunks) > maxChunks:
			it.action, it.err = broken, &embed.TextError{
				Class: embed.Data, Code: "too_many_chunks",
				Message: fmt.Sprintf("the text makes %d chunks, more than %d: increase the chunk size", len(chunks), maxChunks),
			}
		}
		if it.action != vectorIn {
			continue
		}
		it.chunks = make([]rows.Chunk, len(chunks))
		for k, c := range chunks {
			it.chunks[k] = rows.Chunk{Chunk: c, Hash: pipeline.TextHash(c.Embedded(it.row.Text))}
		}
	}
	return nil
}

// tokens returns the chunking settings, and for each item its text and title with the ends of their tokens. Items whose
// tokens the embedder does not tell are broken.
func (w *Worker) tokens(ctx context.Context, items []*item) (chunk.Settings, []chunk.Text, error) {
	c := w.o.Pipeline.Chunking
	settings := c.Settings()
	texts := make([]string, 0, 2*len(items))
	for _, it := range items {
		texts = append(texts, it.row.Text, it.row.Title)
	}
	cut := make([]chunk.Text, len(texts))
	if !c.On() || c.ByCharacters() {
		for i, text := range texts {
			cut[i].Text = text
		}
		return settings, cut, nil
	}
	about, err := w.o.Service.Describe(ctx)
	if err != nil {
		return settings, nil, err
	}
	tokens, err := w.o.Service.Tokenize(ctx, texts, items[0].task.Alone())
	if errors.Is(err, embed.ErrNoTokens) && c.Strategy != pipeline.ChunkTokens {
		tokens, err = embed.Tokens{Ends: make([][]int, len(texts)), Around: estimatedAround}, nil
		for i, text := range texts {
			tokens.Ends[i] = chunk.Estimate(text)
		}
	}
	if err != nil {
		if _, ok := errors.AsType[*embed.Error](err); !ok && errors.Is(err, embed.ErrNoTokens) {
			err = &embed.Error{Class: embed.Configuration, Code: "no_tokens", Err: err}
		}
		return settings, nil, err
	}
	for _, f := range tokens.Failed {
		items[f.At/2].action, items[f.At/2].err = broken, f.Err
	}
	settings = settings.Within(about.MaxTokens, tokens.Around)
	for i, text := range texts {
		cut[i] = chunk.Text{Text: text, Ends: tokens.Ends[i]}
	}
	return settings, cut, nil
}

// embedUnknown embeds the chunks without a vector, numbers all chunks, and reads the vectors of chunks that are stored
// under another number.
func (w *Worker) embedUnknown(ctx context.Context, items []item) error {
	var (
		texts  []string
		owners []*item
		wanted []*rows.Chunk
	)
	for i := range items {
		it := &items[i]
		for k := range it.chunks {
			if c := &it.chunks[k]; it.action == vectorIn && c.Unknown() {
				it.sent = true
				texts, owners, wanted = append(texts, c.Embedded(it.row.Text)), append(owners, it), append(wanted, c)
			}
		}
	}
	results, err := w.embedAll(ctx, items, texts)
	if err != nil {
		return err
	}
	for j, result := range results {
		owners[j].paid = owners[j].paid || result.Sent
		switch {
		case result.Err != nil:
			owners[j].action, owners[j].err = broken, result.Err
		case result.Empty:
			wanted[j].Empty = true
		default:
			wanted[j].Vector = result.Vector
		}
	}
	for i := range items {
		items[i].number()
	}
	return w.fetchMoved(ctx, items)
}

// embedAll embeds texts of items, if any, a batch at a time.
func (w *Worker) embedAll(ctx context.Context, items []item, texts []string) ([]embed.Result, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if err := reached(items[0].task, "before-embed"); err != nil {
		return nil, err
	}
	// The budget covers all of them together, so that running out does not waste half a row.
	results, err := w.withinBudget(ctx, texts, func() (all []embed.Result, err error) {
		for len(all) < len(texts) && err == nil {
			var some []embed.Result
			some, err = w.callEmbedder(ctx, items, texts[len(all):min(len(texts), len(all)+w.o.BatchRows)])
			all = append(all, some...)
		}
		return all, err
	})
	if err != nil {
		return nil, embedderError{err}
	}
	return results, nil
}

// number drops chunks without tokens, so that the index of each chunk is its number.
func (it *item) number() {
	if it.action != vectorIn {
		return
	}
	it.chunks = slices.DeleteFunc(it.chunks, func(c rows.Chunk) bool { return c.Empty })
	if len(it.chunks) == 0 {
		it.action = empty
	}
	for no := range it.chunks {
		c := &it.chunks[no]
		c.Stays = c.From != nil && c.From.No == no && !c.From.Respell
	}
}
