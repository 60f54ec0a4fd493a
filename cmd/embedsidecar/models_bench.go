package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/models"
)

// benchCommand measures a model on this machine.
type benchCommand struct {
	limit     time.Duration
	precision string
}

// benched is what models bench prints.
type benched struct {
	Model           string  `json:"model"`
	Precision       string  `json:"precision"`
	TextsPerSecond  float64 `json:"texts_per_second"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	SingleP50       float64 `json:"single_p50_ms"`
	SingleP99       float64 `json:"single_p99_ms"`
	StartSeconds    float64 `json:"start_seconds"`
	Texts           int     `json:"texts"`
}

func newModelsBench() *command {
	c := &benchCommand{}
	return &command{
		name: "bench", group: groupModels, usage: "measure how fast a model is here", arguments: "[MODEL]", maxArgs: 1,
		description: "Embeds sample texts through the plugin " + folderPlugin() + ": in large calls for half of the time, then one by one. Texts have one to twenty sentences. Other work on this machine shows in the figures.",
		flags: []cli.Flag{
			&cli.DurationFlag{
				Name: "for", Destination: &c.limit, Value: 10 * time.Second,
				Usage: "`DURATION` of the measurement",
			},
			&cli.StringFlag{
				Name: "precision", Destination: &c.precision,
				Usage: "`PRECISION` fp32, or int8 for a model that was imported with --int8",
			},
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *benchCommand) run(ctx context.Context, env *environment) (err error) {
	if c.limit <= 0 {
		return misuse("--for: expected a duration of more than nothing")
	}
	m, err := env.modelNamed()
	if err != nil {
		return err
	}
	h, err := env.openModel(m.ref, c.precision)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	began := time.Now()
	about, err := h.Describe(ctx)
	if err != nil {
		return err
	}
	b := benched{Model: m.name, Precision: c.precision, StartSeconds: time.Since(began).Seconds()}
	if b.Precision == "" {
		b.Precision = "as configured"
	}
	if err := b.measure(ctx, h, about, c.limit); err != nil {
		return err
	}
	return env.show(b, func() listing {
		return listing{
			header: []string{"model", "precision", "texts/s", "tokens/s", "one text, p50 ms", "p99 ms", "start s"},
			right:  []int{2, 3, 4, 5, 6},
			rows: [][]any{{
				b.Model, b.Precision, b.TextsPerSecond, b.TokensPerSecond, b.SingleP50, b.SingleP99,
				b.StartSeconds,
			}},
		}
	})
}

const benchTexts = 256 // in one call

// measure embeds in large calls until half of the time is over, and single texts until all of it is.
func (b *benched) measure(ctx context.Context, e embed.Embedder, about embed.Description, limit time.Duration) error {
	texts, began, tokens := models.Samples(benchTexts), time.Now(), 0
	for time.Since(began) < limit/2 {
		results, err := embedAll(ctx, e, about, embed.Document, texts)
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
