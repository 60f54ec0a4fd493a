package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
)

// prefix is the prefix of the plugin's variables.
const prefix = "EMBEDSIDECAR_PLUGIN_"

const maxDims = 16_000 // the contract's limit

// options reads the environment. The model validates the values.
func (e *embedder) options() (model.Options, error) {
	options := model.Options{
		Folder: e.get("MODEL"), Weights: e.get("MODEL_SHA256"), Precision: e.get("PRECISION"), Provider: e.get("PROVIDER"),
		Settings: model.Settings{
			Pooling: e.get("POOLING"), Truncate: e.get("TRUNCATE"),
			DocumentPrefix: e.text("DOCUMENT_PREFIX"), QueryPrefix: e.text("QUERY_PREFIX"),
		},
	}
	if options.Folder == "" {
		return model.Options{}, errors.New(prefix +
			"MODEL is not set: it names the model's folder, see tools/fetch-model.sh")
	}
	err := errors.Join(
		e.number("THREADS", embed.MaxThreads, &options.Threads),
		e.number("MAX_TOKENS", model.MaxTokensLimit, &options.Settings.MaxTokens),
		e.number("DIMS", maxDims, &options.Settings.Dims),
	)
	if err != nil {
		return model.Options{}, err
	}
	for key, into := range map[string]**bool{
		"NORMALIZE": &options.Settings.Normalize, "LAYER_NORM": &options.Settings.LayerNorm,
	} {
		text := e.get(key)
		if text == "" {
			continue
		}
		value, err := strconv.ParseBool(text)
		if err != nil {
			return model.Options{}, fmt.Errorf("%s=%q: want true or false", prefix+key, text)
		}
		*into = &value
	}
	program, err := os.Executable()
	switch {
	case err != nil:
		program = "" // then only the system's folder is searched
	case strings.HasPrefix(program, "/memfd:"): // a pinned program that others can write runs from a copy in memory
		program = os.Args[0]
	}
	options.Library, err = model.FindLibrary(e.get("ONNXRUNTIME"), program)
	return options, err
}

func (e *embedder) get(key string) string {
	value, _ := e.lookup(prefix + key)
	return value
}

// text returns the value of a variable that may be empty, or nil when it is not set.
func (e *embedder) text(key string) *string {
	if value, ok := e.lookup(prefix + key); ok {
		return &value
	}
	return nil
}

func (e *embedder) number(key string, most int, into *int) error {
	text := e.get(key)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return fmt.Errorf("%s=%q: want a number from 0 to %d", prefix+key, text, most)
	}
	*into = n
	return nil
}
