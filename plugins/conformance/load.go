package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
)

const (
	parallel    = 8                      // concurrent calls
	interrupts  = 8                      // concurrent calls that are cancelled
	interruptAt = 200 * time.Millisecond // after this, or after half of a call if that is less
	comeBack    = 5 * time.Second        // time limit of the next call
)

func checkConcurrency(ctx context.Context, t *tester) Check {
	type job struct {
		kind  embed.Kind
		texts []string
		want  [][]float32
	}
	var jobs []job
	began := time.Now()
	for i := range parallel {
		j := job{kind: []embed.Kind{embed.Document, embed.Query}[i%2], texts: sentences(uint64(100+i), t.batch(8))}
		j.want = must(t.vectors(ctx, j.kind, j.texts))
		jobs = append(jobs, j)
	}
	single := time.Since(began)
	began = time.Now()
	const rounds = 3
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	mixed, answered := 0, 0
	p := t.run
	for _, j := range jobs {
		wg.Go(func() {
			for range rounds {
				got, err := t.parallelVectors(ctx, j.kind, j.texts)
				mu.Lock()
				failed = errors.Join(failed, err)
				for i := range got {
					answered++
					if t.distance(j.want[i], got[i]) > small {
						mixed++
					}
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began) / rounds
	const advice = "calls run at the same time: guard what they share (buffers, tokenizers, sessions), or let one call in at a time by a lock"
	switch {
	case failed != nil:
		select {
		case <-p.Gone():
			return fail(advice, "the plugin died under %d calls at the same time: %s", parallel, p.Ending())
		default:
		}
		return fail(advice, "%d calls at the same time: %s", parallel, failed)
	case mixed > 0:
		return fail(advice, "of %d vectors, %d differ from those of calls one by one", answered, mixed)
	}
	return pass("%d calls at the same time: right, in %s; one by one they took %s", parallel, milliseconds(took),
		milliseconds(single))
}

// parallelVectors is vectors for concurrent use: it starts and stops no plugin.
func (t *tester) parallelVectors(ctx context.Context, kind embed.Kind, texts []string) ([][]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.CallTimeout(len(texts)*parallel, 64<<10))
	defer cancel()
	resp, err := t.run.Client().Embed(ctx, t.request(kind, texts))
	if err != nil {
		st := status.Convert(err)
		t.said.heard("the message of status "+st.Code().String(), st.Message())
		return nil, fmt.Errorf("a call failed with %s", st.Code())
	}
	results, err := t.run.Read(resp, t.about, texts)
	if err != nil {
		return nil, err
	}
	return ordinary(results)
}

func checkCancellation(ctx context.Context, t *tester) Check {
	return t.interrupted(ctx, "cancelled", func(ctx context.Context, after time.Duration) (context.Context,
		context.CancelFunc,
	) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(after, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	})
}

func checkDeadline(ctx context.Context, t *tester) Check {
	return t.interrupted(ctx, "given up at their deadline", context.WithTimeout)
}

// interrupted gives up several large calls at once and measures how long the plugin takes to answer the next small one.
func (t *tester) interrupted(ctx context.Context, how string, giveUp func(context.Context,
	time.Duration) (context.Context, context.CancelFunc),
) Check {
	p := must(t.plugin(ctx))
	texts := t.split(sentences(7, t.batch(256)))[0]
	whole := time.Now()
	must(t.vectors(ctx, embed.Document, texts))
	after := min(interruptAt, time.Since(whole)/2) //nolint:mnd // the middle
	var wg sync.WaitGroup
	var cut atomic.Int32
	for range interrupts {
		wg.Go(func() {
			ctx, cancel := giveUp(ctx, after)
			defer cancel()
			_, err := p.Client().Embed(ctx, t.request(embed.Document, texts))
			if code := status.Code(err); code == codes.Canceled || code == codes.DeadlineExceeded {
				cut.Add(1)
			}
		})
	}
	wg.Wait()
	n := int(cut.Load())
	began := time.Now()
	if _, err := t.vectors(ctx, embed.Document, usualTexts[:1]); err != nil {
		if call, ok := errors.AsType[*callError](err); ok {
			call.advice = "stop working on a call whose context has ended, and let go of its locks: others wait for them"
		}
		abandon(fmt.Errorf("after %d calls of %d texts, %d of them %s: %w", interrupts, len(texts), n, how, err))
	}
	took := time.Since(began)
	switch {
	case took > t.patience(comeBack):
		return warn("look at the call's context between texts and stop when it has ended: no one waits for the result",
			"of %d calls of %d texts, %d were %s; the next small call was answered after %s", interrupts, len(texts), n, how,
			took.Round(time.Millisecond))
	case n == 0:
		return pass("it is so fast that none of %d calls could be %s", interrupts, how)
	}
	return pass("of %d calls of %d texts, %d were %s; the next small call was answered after %s", interrupts, len(texts),
		n, how, milliseconds(took))
}

func checkThroughput(ctx context.Context, t *tester) Check {
	texts := t.split(sentences(8, t.batch(64)))[0]
	_, limit := t.allowed(texts)
	done := 0
	var longest time.Duration
	began := time.Now()
	for time.Since(began) < t.opts.Soak/5 {
		call := time.Now()
		must(t.vectors(ctx, embed.Document, texts))
		longest = max(longest, time.Since(call))
		done += len(texts)
	}
	rate := float64(done) / time.Since(began).Seconds()
	measured := fmt.Sprintf("%.0f texts/s at %d a call; the longest call took %s of the %s allowed", rate, len(texts),
		milliseconds(longest), limit.Round(time.Millisecond))
	const advice = "describe a lower max_batch, so that a call is short; a call beyond the limit gets the plugin killed"
	switch {
	case longest > limit/2:
		return fail(advice, "%s", measured)
	case longest > limit/5:
		return warn(advice, "%s", measured)
	}
	return pass("%s", measured)
}

const (
	mib = 1 << 20
	// A leak of a few bytes per text matters after days; growth by this much within the soak matters after hours.
	leakFails = 32 * mib
	leakWarns = 8 * mib
	rounds    = 40 // of the soak, at least
)

// checkMemory embeds new texts for the whole soak and compares memory in the second and the last quarter. Caches and
// heaps fill up in the first.
func checkMemory(ctx context.Context, t *tester) Check {
	t.stop() // the heap that the largest calls left could hide a leak, or look like one
	texts := t.split(sentences(9, t.batch(64)))[0]
	began := time.Now()
	must(t.vectors(ctx, embed.Document, texts))
	if t.run.Memory() == 0 {
		return warn("run this on Linux", "the memory of a process cannot be read on this system")
	}
	// Make enough rounds to see a slope, even with a slow model.
	for took := time.Since(began); took > t.opts.Soak/rounds && len(texts) > 1; took /= 2 {
		texts = texts[:len(texts)/2]
	}
	var samples []int64
	done := 0
	began = time.Now()
	for seed := uint64(1000); time.Since(began) < t.opts.Soak || len(samples) < rounds; seed++ {
		round := sentences(seed, len(texts))
		must(t.together(ctx, embed.Document, round))
		samples = append(samples, t.run.Memory())
		done += len(round)
	}
	quarter := len(samples) / 4
	second, third, last := median(samples[quarter:2*quarter]), median(samples[2*quarter:3*quarter]),
		median(samples[3*quarter:])
	growth := last - second
	const advice = "something keeps memory for each call: look for lists that grow, caches without a limit, tensors that are never freed"
	report := func(as func(string, string, ...any) Check) Check {
		return as(advice, "%d MiB grew to %d MiB in the second half of %d texts", second/mib, last/mib, done)
	}
	steady := third-second > growth/4 // not a single late step
	switch {
	case growth > leakFails && growth > second/10 && steady:
		return report(fail)
	case growth > leakWarns && growth > second/20:
		return report(warn)
	}
	return pass("%d MiB, then %d MiB over %d texts", second/mib, last/mib, done)
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
