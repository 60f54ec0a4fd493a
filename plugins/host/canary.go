package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// canaries are texts whose vectors the host knows. A plugin that returns vectors in the wrong order would write each to
// the wrong row, and its answer does not show that. The lengths differ a lot, because the usual bug is to sort by
// length and not restore the order.
var canaries = []string{
	"Herons wade at dawn.",
	"The harbour master logs each arriving vessel before breakfast, weather allowing.",
	"Granite",
	"Because the orchard had been pruned too late, its blossom opened in the week of the frost, and by midsummer only the three " +
		"quince trees along the southern wall were bearing; the gardeners cut the remainder down in October, sold the timber to a " +
		"violin maker, and planted walnuts, which nobody living would harvest.",
}

// CanaryTexts returns the texts that a host itself sends, with Options.Canary set and in Reload. Code that counts
// embedded texts must skip them.
func CanaryTexts() []string { return slices.Clone(canaries) }

const (
	// canaryTimeout is the limit for the canaries while other calls are under way. A timeout proves nothing.
	canaryTimeout = 10 * time.Second
	// startCanaryTimeout is the limit at a start and in Reload.
	startCanaryTimeout = time.Minute
	// canaryMargin is how much closer, in likeness (embed.Description), a vector must be to another text's vector than
	// to its own to count as swapped.
	canaryMargin = 0.01
	// canarySame is the least likeness of vectors from two processes of a deterministic embedder. The last bits may
	// depend on the batch.
	canarySame = 0.999
	// canaryAlike is the same for an embedder that is not deterministic.
	canaryAlike = 0.97
)

// prove is the last step of a start: it checks the process before calls go to it.
func (i *instance) prove(ctx context.Context) error {
	if i.slot.opts.Canary > 0 {
		if err := i.compare(ctx, startCanaryTimeout); err != nil {
			return err
		}
	}
	limit := int64(i.slot.opts.MemoryLimit)
	if used := groupMemory(i.process.pid); limit > 0 && used > limit {
		return configuration("memory",
			fmt.Errorf("it uses %s of memory right after its start, and its memory_limit is %s: raise that, or choose a smaller model", mebibytes(used), mebibytes(limit)))
	}
	return nil
}

// selfTest sends the canaries to a process that has answered calls.
func (i *instance) selfTest(ctx context.Context) {
	err := i.compare(ctx, canaryTimeout)
	if err == nil || i.process.gone() {
		return
	}
	_, code := embed.Classify(err)
	i.slot.opts.Log.Error("plugin returns wrong vectors: those since its last check may be wrong; find them with embedsidecar verify --deep",
		"code", code, "check_interval", i.slot.opts.Canary, "error", err)
	i.process.kill("its answers are not those of its texts")
	i.slot.host.trip("its answers are not those of its texts")
}

// compare sends the canaries in one call and compares the vectors with those of single calls, which are made once, by
// the first process. Only a wrong vector is an error; a missing answer proves nothing.
func (i *instance) compare(ctx context.Context, timeout time.Duration) error {
	if i.desc.Reranks { // it makes no vectors, and its scores are not stored
		return nil
	}
	h := i.slot.host
	h.mu.Lock()
	h.rounds++
	turn := h.rounds
	h.mu.Unlock()
	// The order is never that of length, and changes with each round.
	order := make([]int, len(canaries))
	for at := range order {
		order[at] = (at + turn) % len(canaries)
	}
	// All calls run at the same time: a provider may take seconds for each.
	var got [][]float32
	var together sync.WaitGroup
	together.Go(func() { got = i.ask(ctx, order, timeout) })
	known := i.known(ctx, timeout)
	together.Wait()
	if got == nil || known == nil {
		return nil
	}
	for at, which := range order {
		if err := i.judge(got[at], known, which); err != nil {
			return err
		}
	}
	return nil
}

// judge compares one vector with the known ones.
func (i *instance) judge(got []float32, known [][]float32, which int) error {
	if len(got) == 0 || len(known[which]) == 0 {
		return nil // the plugin has no vector for this text
	}
	own, least := i.desc.Likeness(got, known[which]), canarySame
	if !i.desc.Deterministic {
		least = canaryAlike
	}
	for other := range known {
		if other == which || len(known[other]) == 0 {
			continue
		}
		if c := i.desc.Likeness(got, known[other]); c >= least && c > own+canaryMargin {
			return configuration("order", errors.New(
				"it answers texts in another order than it is asked, so vectors would go to the wrong rows: fix the plugin; it must restore the order of the request"))
		}
	}
	if own < least {
		return configuration("drift", fmt.Errorf(
			"its vectors do not match its fingerprint %q: their likeness to earlier vectors is %.4f, want %.4f. "+
				"Another model needs another fingerprint and its own pipeline", i.desc.Fingerprint, own, least))
	}
	return nil
}

// known returns the host's vectors of the canaries. The first process that is asked makes them, each in a call of its
// own; if a call fails, the result is nil. A text without a vector has an empty one.
func (i *instance) known(ctx context.Context, timeout time.Duration) [][]float32 {
	h := i.slot.host
	h.mu.Lock()
	vectors := h.canary
	h.mu.Unlock()
	if vectors != nil {
		return vectors
	}
	vectors = make([][]float32, len(canaries))
	var failed atomic.Bool
	var asked sync.WaitGroup
	for at := range canaries {
		asked.Go(func() {
			if got := i.ask(ctx, []int{at}, timeout); got != nil {
				vectors[at] = got[0]
			} else {
				failed.Store(true)
			}
		})
	}
	asked.Wait()
	if failed.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.canary = vectors
	return vectors
}

// ask returns the vectors of some canaries, or nil if the plugin's answer is invalid. These calls are not counted.
func (i *instance) ask(ctx context.Context, order []int, timeout time.Duration) [][]float32 {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	texts := lists.Map(order, func(which int) string { return canaries[which] })
	results := make([]embed.Result, len(texts))
	err := limitsOf(i.desc).inBatches(texts, invalid, func(b *batch) error {
		req := &pluginpb.EmbedRequest{Model: i.desc.Model, Kind: pluginpb.Kind_KIND_DOCUMENT, Texts: b.texts}
		resp, err := i.rpc.Embed(ctx, req, grpc.MaxCallRecvMsgSize(answerLimit(len(b.texts), i.desc)))
		if err != nil {
			return err
		}
		return readAnswer(resp, i.desc, b, results)
	})
	if err != nil {
		_, code := embed.Classify(err)
		i.slot.opts.Log.Debug("canaries not answered", "pid", i.process.pid, "code", code)
		return nil
	}
	return lists.Map(results, func(r embed.Result) []float32 { return r.Vector })
}
