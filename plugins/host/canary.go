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
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// A plugin that answers in another order than it was asked gives every vector to the wrong row, and nothing in its
// answer shows it. So it is asked texts of which the host knows the vectors: the canaries. They have very different
// lengths, because sorting by length and not undoing it is how the order gets lost.
var canaries = []string{
	"Herons wade at dawn.",
	"The harbour master logs each arriving vessel before breakfast, weather allowing.",
	"Granite",
	"Because the orchard had been pruned too late, its blossom opened in the week of the frost, and by midsummer only the three " +
		"quince trees along the southern wall were bearing; the gardeners cut the remainder down in October, sold the timber to a " +
		"violin maker, and planted walnuts, which nobody living would harvest.",
}

// CanaryTexts returns the texts that a host asks on its own account, with Options.Canary set and in Reload: what
// counts the texts of others leaves them out.
func CanaryTexts() []string { return slices.Clone(canaries) }

const (
	// canaryTimeout is how long the canaries may take beside other calls. A plugin that is too busy to answer them
	// proves nothing.
	canaryTimeout = 10 * time.Second
	// startCanaryTimeout is how long they may take when there is nothing else to do, and much depends on the answer.
	startCanaryTimeout = time.Minute
	// A vector is another text's when it is that one's and this much farther from its own, in likeness
	// (embed.Description).
	canaryMargin = 0.01
	// Two processes of one deterministic embedder give vectors this near, in likeness; the last bits may depend on the
	// batch.
	canarySame = 0.999
	// And those of one that is not deterministic.
	canaryAlike = 0.97
)

// prove is the last part of a start: what a process must show before it gets anything to do.
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

// selfTest asks the canaries of a process that has been at work.
func (i *instance) selfTest(ctx context.Context) {
	err := i.compare(ctx, canaryTimeout)
	if err == nil || i.process.gone() {
		return
	}
	_, code := embed.Classify(err)
	i.slot.opts.Log.Error("plugin answers wrongly: what it made since its last check may be wrong; embedsidecar verify --deep finds it",
		"code", code, "check_interval", i.slot.opts.Canary, "error", err)
	i.process.kill("its answers are not those of its texts")
	i.slot.host.trip("its answers are not those of its texts")
}

// compare asks the canaries in one call and holds the answer against what the embedder gave for each alone, which the
// first process is asked for. Only a wrong answer is an error; none at all proves nothing.
func (i *instance) compare(ctx context.Context, timeout time.Duration) error {
	if i.desc.Reranks { // it makes no vectors, and what it gives is written nowhere
		return nil
	}
	h := i.slot.host
	h.mu.Lock()
	known := h.canary
	h.rounds++
	turn := h.rounds
	h.mu.Unlock()
	// Never in order of length, and never twice in the same order.
	order := make([]int, len(canaries))
	for at := range order {
		order[at] = (at + turn) % len(canaries)
	}
	// All at once: a provider may take seconds for each.
	var got [][]float32
	var together sync.WaitGroup
	together.Go(func() { got = i.ask(ctx, order, timeout) })
	if known == nil {
		if known = i.alone(ctx, timeout); known != nil {
			h.mu.Lock()
			h.canary = known
			h.mu.Unlock()
		}
	}
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

// judge holds one vector against those that are known.
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
				"it answers texts in another order than it is asked, so its vectors would go to the wrong rows: mend the plugin; it must undo whatever sorting it does"))
		}
	}
	if own < least {
		return configuration("drift", fmt.Errorf(
			"its vectors are not those that its fingerprint %q stands for: the likeness to what it gave before is %.4f, want %.4f. "+
				"Another model needs another fingerprint, and a pipeline of its own", i.desc.Fingerprint, own, least))
	}
	return nil
}

// alone returns the vectors of the canaries, each from a call of its own, or nil when one cannot be had. A text
// without one has an empty vector.
func (i *instance) alone(ctx context.Context, timeout time.Duration) [][]float32 {
	vectors := make([][]float32, len(canaries))
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
	return vectors
}

// ask returns the vectors of some canaries, or nil when the plugin does not answer as it should. These calls count
// nowhere.
func (i *instance) ask(ctx context.Context, order []int, timeout time.Duration) [][]float32 {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var vectors [][]float32
	l := limitsOf(i.desc)
	for len(order) > 0 {
		n := min(len(order), l.texts)
		b := &batch{}
		for _, which := range order[:n] {
			if l.refuse(canaries[which]) != nil || !l.fits(b, canaries[which]) {
				return nil
			}
			b.add(len(b.texts), canaries[which])
		}
		req := &pluginpb.EmbedRequest{Model: i.desc.Model, Kind: pluginpb.Kind_KIND_DOCUMENT, Texts: b.texts}
		resp, err := i.rpc.Embed(ctx, req, grpc.MaxCallRecvMsgSize(answerLimit(n, i.desc)))
		results := make([]embed.Result, n)
		if err == nil {
			err = readAnswer(resp, i.desc, b, results)
		}
		if err != nil {
			_, code := embed.Classify(err)
			i.slot.opts.Log.Debug("canaries not answered", "pid", i.process.pid, "code", code)
			return nil
		}
		for _, r := range results {
			vectors = append(vectors, r.Vector)
		}
		order = order[n:]
	}
	return vectors
}
