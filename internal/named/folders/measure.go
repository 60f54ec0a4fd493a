package folders

import (
	"context"
	"errors"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// triedTexts is how many texts a model is tried with.
const triedTexts = 64

// Shown is what a model is: what its folder says, and what it says of itself.
type Shown struct {
	models.Info
	Fingerprint string `json:"fingerprint,omitempty"`
	VectorDims  int    `json:"vector_dims,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
	// Deterministic: a text's vector is the same whatever it is embedded with, measured on this machine.
	Deterministic bool             `json:"deterministic,omitempty"`
	Int8Likeness  *models.Likeness `json:"int8_likeness,omitempty"`
	// Settings are what the model goes by, and where each comes from.
	Settings []embed.Setting `json:"settings"`
}

// Show opens a model, by its name or as a path, and tells what it is; "" is the default one.
func (f Folders) Show(ctx context.Context, name string) (shown Shown, err error) {
	m, err := f.named(name)
	if err != nil {
		return shown, err
	}
	shown.Info = models.Describe(m.folder)
	shown.Name = m.name
	h, err := f.open(m.ref, "")
	if err != nil {
		return shown, err
	}
	about, err := h.Describe(ctx)
	if err = errors.Join(err, h.Close()); err != nil {
		return shown, err
	}
	shown.Fingerprint, shown.VectorDims, shown.MaxTokens = about.Fingerprint, about.Dims, about.MaxTokens
	shown.Deterministic, shown.Settings = about.Deterministic, about.Settings
	if shown.Int8 {
		likeness, err := f.compareInt8(ctx, m.ref)
		if err != nil {
			return shown, err
		}
		shown.Int8Likeness = &likeness
	}
	return shown, nil
}

// Bench measures how fast a model is on this machine, by its name or as a path; "" is the default one.
func (f Folders) Bench(ctx context.Context, name, precision string, limit time.Duration) (b models.Speed, err error) {
	m, err := f.named(name)
	if err != nil {
		return b, err
	}
	h, err := f.open(m.ref, precision)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	began := time.Now()
	about, err := h.Describe(ctx)
	if err != nil {
		return b, err
	}
	b = models.Speed{Model: m.name, Precision: precision, StartSeconds: time.Since(began).Seconds()}
	if b.Precision == "" {
		b.Precision = "as configured"
	}
	err = b.Measure(ctx, h, about, limit)
	return b, err
}

// compareInt8 measures how near the vectors of a model's int8 weights come to those in 32 bits.
func (f Folders) compareInt8(ctx context.Context, ref string) (models.Likeness, error) {
	about, whole, err := f.vectors(ctx, ref, "fp32", triedTexts)
	if err != nil {
		return models.Likeness{}, err
	}
	_, short, err := f.vectors(ctx, ref, "int8", triedTexts)
	if err != nil {
		return models.Likeness{}, err
	}
	return models.Compare(about, whole, short), nil
}

// vectors embeds sample texts with a model, as open names it.
func (f Folders) vectors(ctx context.Context, ref, precision string, count int) (about embed.Description,
	vectors [][]float32, err error,
) {
	h, err := f.open(ref, precision)
	if err != nil {
		return about, nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if about, err = h.Describe(ctx); err != nil {
		return about, nil, err
	}
	if about.Reranks {
		_, err = h.Rerank(ctx, "a query", []string{"a text"})
		return about, nil, err
	}
	vectors, err = models.Vectors(ctx, h, about, count)
	return about, vectors, err
}
