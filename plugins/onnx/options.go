package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
)

// The variables that the plugin reads.
const (
	modelKey          = "EMBEDSIDECAR_PLUGIN_MODEL"
	weightsKey        = "EMBEDSIDECAR_PLUGIN_MODEL_SHA256"
	libraryKey        = "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME"
	threadsKey        = "EMBEDSIDECAR_PLUGIN_THREADS"
	precisionKey      = "EMBEDSIDECAR_PLUGIN_PRECISION"
	providerKey       = "EMBEDSIDECAR_PLUGIN_PROVIDER"
	poolingKey        = "EMBEDSIDECAR_PLUGIN_POOLING"
	normalizeKey      = "EMBEDSIDECAR_PLUGIN_NORMALIZE"
	layerNormKey      = "EMBEDSIDECAR_PLUGIN_LAYER_NORM"
	maxTokensKey      = "EMBEDSIDECAR_PLUGIN_MAX_TOKENS" //nolint:gosec // the name of a variable, not a secret
	truncateKey       = "EMBEDSIDECAR_PLUGIN_TRUNCATE"
	dimsKey           = "EMBEDSIDECAR_PLUGIN_DIMS"
	documentPrefixKey = "EMBEDSIDECAR_PLUGIN_DOCUMENT_PREFIX"
	queryPrefixKey    = "EMBEDSIDECAR_PLUGIN_QUERY_PREFIX"
)

const maxDims = 16_000 // what the contract allows

// options reads the environment. What a model makes of the values is its own business.
func (e *embedder) options() (model.Options, error) {
	options := model.Options{
		Folder: e.get(modelKey), Weights: e.get(weightsKey), Precision: e.get(precisionKey), Provider: e.get(providerKey),
		Settings: model.Settings{
			Pooling: e.get(poolingKey), Truncate: e.get(truncateKey),
			DocumentPrefix: e.text(documentPrefixKey), QueryPrefix: e.text(queryPrefixKey),
		},
	}
	if options.Folder == "" {
		return model.Options{}, fmt.Errorf("%s is not set: it names the model's folder, see tools/fetch-model.sh", modelKey)
	}
	err := errors.Join(
		e.number(threadsKey, embed.MaxThreads, &options.Threads),
		e.number(maxTokensKey, model.MaxTokensLimit, &options.Settings.MaxTokens),
		e.number(dimsKey, maxDims, &options.Settings.Dims),
	)
	if err != nil {
		return model.Options{}, err
	}
	for key, into := range map[string]**bool{
		normalizeKey: &options.Settings.Normalize, layerNormKey: &options.Settings.LayerNorm,
	} {
		text := e.get(key)
		if text == "" {
			continue
		}
		value, err := strconv.ParseBool(text)
		if err != nil {
			return model.Options{}, fmt.Errorf("%s=%q: want true or false", key, text)
		}
		*into = &value
	}
	program, err := os.Executable()
	if err != nil {
		program = "" // then only the system's folder is searched
	}
	options.Library, err = model.FindLibrary(e.get(libraryKey), program)
	return options, err
}

func (e *embedder) get(key string) string {
	value, _ := e.lookup(key)
	return value
}

// text returns the value of a variable that may be empty, or nil when it is not set.
func (e *embedder) text(key string) *string {
	if value, ok := e.lookup(key); ok {
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
		return fmt.Errorf("%s=%q: want a number from 0 to %d", key, text, most)
	}
	*into = n
	return nil
}
