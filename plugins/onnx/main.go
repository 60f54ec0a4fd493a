// Command embedsidecar-onnx is a plugin that embeds texts with a sentence encoder in ONNX format, on this machine.
//
// Environment:
//
//	EMBEDSIDECAR_PLUGIN_MODEL        folder of the model: model.onnx, tokenizer.json, its settings and SHA256SUMS, which is
//	                                 checked at each start. tools/fetch-model.sh makes one
//	EMBEDSIDECAR_PLUGIN_ONNXRUNTIME  shared library of ONNX Runtime 1.24 or newer (1.27 for int8 on CPUs with AMX), or its
//	                                 folder. Default: lib/, ../lib or ../../lib beside this program, then
//	                                 /usr/lib/embedsidecar
//	EMBEDSIDECAR_PLUGIN_THREADS      threads that compute. Default 0: as many as there are CPUs for this process
//	EMBEDSIDECAR_PLUGIN_PRECISION    fp32, or int8 for model_int8.onnx. Default: what model.onnx holds
//	EMBEDSIDECAR_PLUGIN_PROVIDER     what computes: cpu, auto (CUDA where present), cuda, tensorrt, openvino, coreml. Default cpu
//
// and in place of what the folder says:
//
//	EMBEDSIDECAR_PLUGIN_POOLING          mean, cls, last, max, weightedmean or mean_sqrt_len; splade for sparse vectors
//	EMBEDSIDECAR_PLUGIN_NORMALIZE        true or false
//	EMBEDSIDECAR_PLUGIN_LAYER_NORM       true or false: a layer norm before numbers are kept, as nomic-embed-text-v1.5 wants
//	EMBEDSIDECAR_PLUGIN_MAX_TOKENS       tokens that are read of a text, special ones included
//	EMBEDSIDECAR_PLUGIN_TRUNCATE         the side of a longer text that is cut off: right or left
//	EMBEDSIDECAR_PLUGIN_DIMS             numbers of each vector that are kept, of a sparse one the largest
//	EMBEDSIDECAR_PLUGIN_DOCUMENT_PREFIX  put before each document
//	EMBEDSIDECAR_PLUGIN_QUERY_PREFIX     put before each query
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// version is set when the program is built.
var version = "unknown"

// maxBatch is the limit of texts in one call: enough to group texts of similar length, few enough to be answered in
// seconds.
const maxBatch = 512

// goShare is the fraction of the CPUs (1/goShare) for Go's own threads. Go does little work besides the model. Idle Go
// threads that search for work take CPU time from the model, and a call that moves to another thread waits until that
// wakes.
const goShare = 4

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/goShare))
	}
	sdk.Serve(&embedder{lookup: os.LookupEnv, log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}) // the host parses it
}

// embedder implements sdk.Embedder with a model.
type embedder struct {
	lookup func(string) (string, bool)
	log    *slog.Logger

	mu    sync.Mutex
	model *model.Model // nil until opened; other calls come after Describe has succeeded
}

// open opens the model, until it succeeds once. The host gets errors in the files as answers.
func (e *embedder) open(ctx context.Context) (*model.Model, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model != nil {
		return e.model, nil
	}
	options, err := e.options()
	if err != nil {
		return nil, err
	}
	if e.model, err = model.Open(ctx, options); err != nil {
		return nil, err
	}
	about := e.model.Describe()
	for _, s := range about.Settings {
		e.log.InfoContext(ctx, "model setting", "setting", s.Name, "value", s.Value, "source", s.Source)
	}
	e.log.InfoContext(ctx, "model opened", "model", about.Name, "precision", about.Precision, "dims", about.Dims,
		"max_tokens", about.MaxTokens,
		"provider", about.Provider, "threads", about.Threads, "runs", about.Runs, "alone", about.Alone, "onnxruntime",
		about.Library, "deterministic", about.Deterministic)
	return e.model, nil
}

// Describe implements sdk.Embedder. The first call opens the model, which takes a second.
func (e *embedder) Describe(ctx context.Context) (sdk.Info, error) {
	m, err := e.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return sdk.Info{}, err
		}
		return sdk.Info{}, sdk.Misconfigured(err)
	}
	about := m.Describe()
	return sdk.Info{Name: "onnx", Version: version, Models: []sdk.Model{{
		Name: about.Name, Fingerprint: about.Fingerprint, Dims: about.Dims, MaxTokens: about.MaxTokens,
		Symmetric: about.Symmetric, MaxBatch: maxBatch, Deterministic: about.Deterministic, Sparse: about.Sparse,
		Settings: about.Settings, Reranks: about.Reranks,
	}}}, nil
}

// Embed implements sdk.Embedder.
func (e *embedder) Embed(ctx context.Context, _ string, kind sdk.Kind, texts []string) ([]sdk.Answer, error) {
	results, err := e.model.Embed(ctx, kind, texts)
	if err != nil {
		return nil, classed(err)
	}
	answers := make([]sdk.Answer, len(results))
	for i, r := range results {
		if r.Err != nil {
			answers[i].Err = &sdk.TextError{Class: sdk.Invalid, Message: r.Err.Error()}
			continue
		}
		answers[i] = sdk.Answer{Vector: r.Vector, Empty: r.Empty, Truncated: r.Truncated, Tokens: r.Tokens}
		if e.model.Describe().Sparse {
			answers[i].Indices, answers[i].Vector = embed.SplitPairs(r.Vector)
		}
	}
	return answers, nil
}

// Rerank implements sdk.Reranker.
func (e *embedder) Rerank(ctx context.Context, _, query string, texts []string) ([]float32, error) {
	scores, err := e.model.Rerank(ctx, query, texts)
	return scores, classed(err)
}

// classed converts an error of the model to one of the SDK's classes.
func classed(err error) error {
	whole, ok := errors.AsType[*embed.Error](err)
	switch {
	case ok && whole.Class == embed.Resource:
		return sdk.OutOfResources(err, 0)
	case ok && whole.Class == embed.Data: // otherwise the texts would be sent again, unchanged, forever
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// Tokenize implements sdk.Tokenizer.
func (e *embedder) Tokenize(ctx context.Context, _ string, texts []string) (sdk.Tokens, error) {
	tokens, err := e.model.Tokenize(ctx, texts)
	return tokens, classed(err)
}
