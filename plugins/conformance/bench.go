package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Speed is an embedder's speed with one number of texts per call.
type Speed struct {
	Batch           int     `json:"batch"` // texts a call
	Calls           int     `json:"calls"`
	TextsPerSecond  float64 `json:"texts_per_second"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	P50Milliseconds float64 `json:"p50_milliseconds"` // of a call
	P99Milliseconds float64 `json:"p99_milliseconds"`
}

// sizes are the numbers of texts per call that Bench measures, up to the embedder's limit.
var sizes = []int{1, 8, 32, 64, 256}

// Bench measures an embedder with generated texts, one call after the other: for each size at least three calls.
func Bench(ctx context.Context, e embed.Embedder, about embed.Description, each time.Duration) ([]Speed, error) {
	var speeds []Speed
	for _, size := range sizes {
		if about.MaxBatch > 0 && size > about.MaxBatch {
			break
		}
		speed, err := bench(ctx, e, size, each)
		if err != nil {
			return nil, fmt.Errorf("%d texts a call: %w", size, err)
		}
		speeds = append(speeds, speed)
	}
	return speeds, nil
}

func bench(ctx context.Context, e embed.Embedder, size int, each time.Duration) (Speed, error) {
	const least = 3
	var took []time.Duration
	var began time.Time
	tokens := 0
	for turn := 0; turn <= least || time.Since(began) < each; turn++ {
		if turn == 1 { // the first call warms up
			began = time.Now()
		}
		texts := sentences(uint64(size*1000+turn%100), size)
		call := time.Now()
		results, err := e.Embed(ctx, embed.Document, texts)
		if err != nil {
			return Speed{}, err
		}
		for _, r := range results {
			if r.Err != nil {
				return Speed{}, r.Err
			}
			if turn > 0 {
				tokens += r.Tokens
			}
		}
		if turn > 0 {
			took = append(took, time.Since(call))
		}
	}
	var total time.Duration
	for _, d := range took {
		total += d
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	return Speed{
		Batch: size, Calls: len(took), TextsPerSecond: float64(size*len(took)) / total.Seconds(),
		TokensPerSecond: float64(tokens) / total.Seconds(), P50Milliseconds: at(0.5), P99Milliseconds: at(0.99),
	}, nil
}
