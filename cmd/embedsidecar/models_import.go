package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/models"
	"github.com/embedsidecar/embedsidecar/tools"
)

// folderHint says what can be imported.
const folderHint = "a folder to import holds config.json, tokenizer.json, and the weights: model.onnx, onnx/model.onnx or model.safetensors"

// triedTexts is how many texts a new model is tried with.
const triedTexts = 64

// run imports a folder.
func (c *importCommand) run(ctx context.Context, env *environment, from string) error {
	if info, err := os.Stat(from); err != nil || !info.IsDir() {
		return fail(exitUsage, fmt.Errorf("import model: there is no folder %s", from), folderHint,
			"embedsidecar models pull fetches one from a hub")
	}
	home, err := env.modelHome()
	if err != nil {
		return err
	}
	var likeness *models.Likeness
	options := models.ImportOptions{
		From: from, Sums: c.fetched, Name: c.name, Into: home, Int8: c.int8, Python: c.python, Script: tools.MakeONNX,
		Say: func(what string) { env.say("%s", what) },
	}
	if !c.untried {
		options.Try = func(ctx context.Context, folder string) error {
			if _, _, err := env.vectors(ctx, folder, "", triedTexts); err != nil {
				return err
			}
			if c.int8 {
				found, err := env.compareInt8(ctx, folder)
				likeness = &found
				return err
			}
			return nil
		}
	}
	done, err := models.Import(ctx, options)
	if err != nil {
		return importFailure(err)
	}
	type imported struct {
		models.Imported
		Int8 *models.Likeness `json:"int8_likeness,omitempty"`
	}
	return env.show(imported{done, likeness}, func() listing {
		l := listing{header: []string{"model", "path", "outcome"}, rows: [][]any{{done.Name, done.Path, "imported"}}}
		if done.Already {
			l.rows[0][2] = "was there already"
		}
		if likeness != nil {
			l.header, l.rows[0] = append(l.header, "int8 beside fp32"), append(l.rows[0], *likeness)
		}
		return l
	})
}

// importFailure gives an import's error its exit status.
func importFailure(err error) error {
	if exists, ok := errors.AsType[*models.ExistsError](err); ok {
		return fail(exitConflict, err, exists.Hints()...)
	}
	var own interface{ ExitCode() int }
	if errors.As(err, &own) { // a plugin or a library that is not there, with its hints
		return err
	}
	if class, _ := embed.Classify(err); class == embed.Configuration {
		return fail(exitUsage, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitFailed, err, folderHint)
	}
	return fail(exitFailed, err)
}

// compareInt8 measures how near the vectors of a model's int8 weights come to those in 32 bits.
func (e *environment) compareInt8(ctx context.Context, ref string) (models.Likeness, error) {
	about, whole, err := e.vectors(ctx, ref, "fp32", triedTexts)
	if err != nil {
		return models.Likeness{}, err
	}
	_, short, err := e.vectors(ctx, ref, "int8", triedTexts)
	if err != nil {
		return models.Likeness{}, err
	}
	return models.Compare(about, whole, short), nil
}

// vectors embeds sample texts with a model, as openModel names it.
func (e *environment) vectors(ctx context.Context, ref, precision string, count int) (about embed.Description,
	vectors [][]float32, err error,
) {
	h, err := e.openModel(ref, precision)
	if err != nil {
		return about, nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if about, err = h.Describe(ctx); err != nil {
		return about, nil, err
	}
	vectors, err = models.Vectors(ctx, h, about, count)
	return about, vectors, err
}
