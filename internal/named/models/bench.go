package models

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Speed is how fast a model is on this machine.
type Speed struct {
	Model           string  `json:"model"`
	Precision       string  `json:"precision"`
	TextsPerSecond  float64 `json:"texts_per_second"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	SingleP50       float64 `json:"single_p50_ms"`
	SingleP99       float64 `json:"single_p99_ms"`
	StartSeconds    float64 `json:"start_seconds"`
	Texts           int     `json:"texts"`
}

const benchTexts = 256 // in one call

// Measure embeds in large calls until half of the time is over, and single texts until all of it is.
func (b *Speed) Measure(ctx context.Context, e embed.Embedder, about embed.Description, limit time.Duration) error {
	texts, began, tokens := Samples(benchTexts), time.Now(), 0
	for time.Since(began) < limit/2 {
		results, err := embed.All(ctx, e, about, embed.Document, texts)
		if err != nil {
			return err
		}
		for _, r := range results {
			tokens += r.Tokens
		}
		b.Texts += len(texts)
	}
	took := time.Since(began).Seconds()
	b.TextsPerSecond, b.TokensPerSecond = rounded(float64(b.Texts)/took), rounded(float64(tokens)/took)
	var singles []float64
	for i := 0; time.Since(began) < limit || len(singles) == 0; i++ {
		start := time.Now()
		if _, err := e.Embed(ctx, embed.Query, texts[i%len(texts):i%len(texts)+1]); err != nil {
			return err
		}
		singles = append(singles, time.Since(start).Seconds()*1000)
	}
	slices.Sort(singles)
	const p99 = 99
	b.SingleP50, b.SingleP99 = rounded(singles[len(singles)/2]), rounded(singles[(len(singles)-1)*p99/100])
	b.StartSeconds = rounded(b.StartSeconds)
	return nil
}

// rounded keeps three digits or so: more would be noise.
func rounded(x float64) float64 {
	if x >= 100 {
		return math.Round(x)
	}
	return math.Round(x*100) / 100
}
