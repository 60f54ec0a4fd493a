package folders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// agreedTexts is how many sample texts two models are compared with.
const agreedTexts = 300

// Distilled is a static model that was made of another one.
type Distilled struct {
	models.Info
	Teacher   string           `json:"teacher"`
	Agreement models.Agreement `json:"agreement"` // with its teacher
	Seconds   float64          `json:"seconds"`
}

// Distill makes a static model of a model, by its name or as a path; "" is the default one. out is the new folder; "":
// beside the others, named after the model.
func (f Folders) Distill(ctx context.Context, name, out string, dims int, progress func(done, total int)) (d Distilled,
	err error,
) {
	began := time.Now()
	m, err := f.named(name)
	if err != nil {
		return d, err
	}
	if out == "" {
		home, err := f.home()
		if err != nil {
			return d, err
		}
		out = filepath.Join(home, m.name+"-static")
	}
	if out, err = filepath.Abs(out); err != nil {
		return d, err
	}
	h, err := f.open(m.ref, "")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	about, err := h.Describe(ctx)
	if err != nil {
		return d, err
	}
	if about.Dims < dims {
		return d, problem.New(problem.Usage, fmt.Errorf("%d dims: the vectors of %s have %d", dims, m.name, about.Dims))
	}
	d.Teacher = m.name
	options := models.DistillOptions{
		From: m.folder, Out: out, Dims: cmp.Or(dims, min(about.Dims, usualStaticDims)), Teacher: h, About: about,
		Progress: progress,
	}
	options.Try = func(ctx context.Context, folder string) error {
		teacher, err := models.Vectors(ctx, h, about, agreedTexts)
		if err != nil {
			return err
		}
		_, made, err := f.vectors(ctx, folder, "", agreedTexts)
		if err != nil {
			return err
		}
		d.Agreement = models.Agree(teacher, made)
		return nil
	}
	if d.Info, err = models.Distill(ctx, options); err != nil {
		return Distilled{}, importFailure(err)
	}
	d.Seconds = time.Since(began).Seconds()
	return d, nil
}

// usualStaticDims keep most of what a static model knows in a table of a few ten megabytes.
const usualStaticDims = 256
