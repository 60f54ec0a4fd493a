// Command embedsidecar-static is a plugin for static models (model2vec, potion, StaticEmbedding): a text's vector is
// the mean of the vectors of its tokens in a table. It needs neither cgo nor a library.
//
// Environment:
//
//	EMBEDSIDECAR_PLUGIN_MODEL            folder of the model: model.safetensors, tokenizer.json, config.json or modules.json,
//	                                     and SHA256SUMS, which is checked at each start. models import makes one
//	EMBEDSIDECAR_PLUGIN_THREADS          texts that are embedded at a time. Default 0: as many as there are CPUs
//	EMBEDSIDECAR_PLUGIN_DIMS             numbers of each vector that are kept. Default 0: all
//	EMBEDSIDECAR_PLUGIN_MAX_TOKENS       tokens that are read of a text. Default: what the folder says
//	EMBEDSIDECAR_PLUGIN_NORMALIZE        true or false. Default: what the folder says
//	EMBEDSIDECAR_PLUGIN_DOCUMENT_PREFIX  put before each document
//	EMBEDSIDECAR_PLUGIN_QUERY_PREFIX     put before each query
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// version is set when the program is built.
var version = "unknown"

const (
	variables = "EMBEDSIDECAR_PLUGIN_"
	maxBatch  = 512
)

func main() {
	sdk.Serve(&embedder{lookup: os.LookupEnv, log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}) // the host parses it
}

// embedder implements sdk.Embedder with a model.
type embedder struct {
	lookup func(string) (string, bool)
	log    *slog.Logger

	mu      sync.Mutex
	model   *model // nil until opened; other calls come after Describe has succeeded
	threads int
}

// open opens the model, until it succeeds once. The host gets errors in the files as answers.
func (e *embedder) open() (*model, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model != nil {
		return e.model, nil
	}
	o, err := e.options()
	if err != nil {
		return nil, err
	}
	m, err := openModel(o)
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // memory that was used for loading only
	e.model = m
	for _, s := range m.settings {
		e.log.Info("model setting", "setting", s.Name, "value", s.Value, "source", s.Source)
	}
	return m, nil
}

func (e *embedder) get(key string) string {
	value, _ := e.lookup(variables + key)
	return value
}

func (e *embedder) options() (options, error) {
	o := options{folder: e.get("MODEL"), weights: e.get("MODEL_SHA256")}
	if o.folder == "" {
		return o, errors.New(variables + "MODEL is not set: it names the model's folder")
	}
	for _, key := range []string{"POOLING", "TRUNCATE", "PRECISION", "PROVIDER"} {
		if e.get(key) != "" {
			return o, fmt.Errorf("%s%s is set: a static model has no such setting", variables, key)
		}
	}
	for key, into := range map[string]*int{"THREADS": &e.threads, "DIMS": &o.dims, "MAX_TOKENS": &o.maxTokens} {
		text := e.get(key)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return o, fmt.Errorf("%s%s=%q: want a number, 0 or more", variables, key, text)
		}
		*into = n
	}
	if text := e.get("NORMALIZE"); text != "" {
		normalize, err := strconv.ParseBool(text)
		if err != nil {
			return o, fmt.Errorf("%sNORMALIZE=%q: want true or false", variables, text)
		}
		o.normalize = &normalize
	}
	o.prefixes = map[embed.Kind]string{}
	for kind, key := range map[embed.Kind]string{embed.Document: "DOCUMENT_PREFIX", embed.Query: "QUERY_PREFIX"} {
		if prefix, ok := e.lookup(variables + key); ok {
			o.prefixes[kind] = prefix
		}
	}
	return o, nil
}

// Describe implements sdk.Embedder. The first call opens the model.
func (e *embedder) Describe(context.Context) (sdk.Info, error) {
	m, err := e.open()
	if err != nil {
		return sdk.Info{}, sdk.Misconfigured(err)
	}
	return sdk.Info{Name: "static", Version: version, Models: []sdk.Model{{
		Name: m.name, Fingerprint: m.fingerprint, Dims: m.dims, MaxTokens: m.maxTokens, MaxBatch: maxBatch,
		Symmetric: m.prefixes[embed.Document] == m.prefixes[embed.Query], Deterministic: true, Settings: m.settings,
	}}}, nil
}

// Embed implements sdk.Embedder.
func (e *embedder) Embed(ctx context.Context, _ string, kind sdk.Kind, texts []string) ([]sdk.Answer, error) {
	answers := make([]sdk.Answer, len(texts))
	threads := cmp.Or(e.threads, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(threads, len(texts)) {
		wait.Go(func() {
			var ids []int32
			for i := int(next.Add(1)) - 1; i < len(texts) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				answers[i], ids = e.model.embed(kind, texts[i], ids[:0])
			}
		})
	}
	wait.Wait()
	return answers, ctx.Err()
}

// Tokenize implements sdk.Tokenizer.
func (e *embedder) Tokenize(ctx context.Context, _ string, texts []string) (sdk.Tokens, error) {
	ends := e.model.tokenizer.Ends
	return sdk.Tokens{Ends: lists.Map(texts, ends), Around: len(ends(e.model.prefixes[embed.Document]))}, ctx.Err()
}
