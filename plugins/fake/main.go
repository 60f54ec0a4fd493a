// Command embedsidecar-fake is an embedder for tests and benchmarks. It is cheap, and its vectors have no meaning but
// can be recomputed (package vector says how). It can be made to be slow, to return wrong answers and to crash.
//
// Environment:
//
//	EMBEDSIDECAR_PLUGIN_DIMS             width of the vectors, 1 to 16000; default 384; sparse: 1 to 16777216, default 30522
//	EMBEDSIDECAR_PLUGIN_SPARSE           true: the model is sparse (vector.Sparse)
//	EMBEDSIDECAR_PLUGIN_RERANKS          true: the model is a reranker (vector.Score)
//	EMBEDSIDECAR_PLUGIN_BATCHES          true: the model has batch jobs, which are done at once
//	EMBEDSIDECAR_PLUGIN_MAX_BATCH        described limit of texts per call; default 0, none
//	EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES  described limit of bytes per call; default 0, none
//	EMBEDSIDECAR_PLUGIN_CALLS            file that gets one line for each call as it begins: kind, number of texts, and 16
//	                                     hexadecimal digits for each text (vector.Hash); vector.ReadCalls reads it
//	EMBEDSIDECAR_PLUGIN_FAULTS           costs and faults, see faults.go
//	EMBEDSIDECAR_PLUGIN_FORKS            file that gets the numbers of the processes that the fault fork starts
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// version is the plugin's version. The fingerprint does not depend on it.
const version = "1.0.0"

func main() {
	if len(os.Args) > 1 && os.Args[1] == forked {
		select {}
	}
	e, err := newEmbedder(os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "embedsidecar-fake: error: %s\n", err)
		os.Exit(2)
	}
	e.faults.atStart()
	sdk.ServeServer(&breaker{
		EmbedderServer: sdk.NewServer(e, os.Stderr), faults: e.faults, calls: map[context.Context]bool{},
	})
}

// embedder is the honest part.
type embedder struct {
	dims, maxBatch, maxBatchBytes int
	sparse, reranks, batches      bool
	faults                        faults
	calls                         *os.File // nil: calls are not recorded

	mu     sync.Mutex
	leaked [][]byte
	jobs   map[string]job // by nonce
}

func newEmbedder(getenv func(string) string) (*embedder, error) {
	e := &embedder{dims: vector.DefaultDims, jobs: map[string]job{}}
	widest, wanted := pluginpb.MaxDims, getenv("EMBEDSIDECAR_PLUGIN_FAULTS")
	switch sparse := getenv("EMBEDSIDECAR_PLUGIN_SPARSE"); sparse {
	case "", "false":
	case "true":
		e.sparse, e.dims, widest = true, vector.SparseDims, pluginpb.MaxSparseDims
	default:
		return nil, fmt.Errorf("EMBEDSIDECAR_PLUGIN_SPARSE=%q: want true or false", sparse)
	}
	e.batches = getenv("EMBEDSIDECAR_PLUGIN_BATCHES") == "true"
	if getenv("EMBEDSIDECAR_PLUGIN_RERANKS") == "true" {
		e.reranks, e.dims = true, 1
		getenv = func(string) string { return "" } // a reranker has no width and makes no vectors
	}
	for _, v := range []struct {
		key      string
		into     *int
		min, max int
	}{
		{"EMBEDSIDECAR_PLUGIN_DIMS", &e.dims, 1, widest},
		{"EMBEDSIDECAR_PLUGIN_MAX_BATCH", &e.maxBatch, 0, 1 << 30},
		{"EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES", &e.maxBatchBytes, 0, 1 << 30},
	} {
		text := getenv(v.key)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < v.min || n > v.max {
			return nil, fmt.Errorf("%s=%q: want a number from %d to %d", v.key, text, v.min, v.max)
		}
		*v.into = n
	}
	// A copy of the program named embedsidecar-fake-dims12 acts as another model.
	if _, own, is := strings.Cut(filepath.Base(os.Args[0]), "-dims"); is {
		n, err := strconv.Atoi(own)
		if err != nil || n < 1 || n > widest {
			return nil, fmt.Errorf("the name %s ends with no width", os.Args[0])
		}
		e.dims = n
	}
	var err error
	if e.faults, err = parseFaults(wanted); err != nil {
		return nil, fmt.Errorf("EMBEDSIDECAR_PLUGIN_FAULTS: %w", err)
	}
	if path := getenv("EMBEDSIDECAR_PLUGIN_CALLS"); path != "" {
		if e.calls, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return nil, fmt.Errorf("EMBEDSIDECAR_PLUGIN_CALLS: %w", err)
		}
	}
	return e, nil
}

// Describe implements sdk.Embedder.
func (e *embedder) Describe(context.Context) (sdk.Info, error) {
	if err := e.faults.beforeDescribe(); err != nil {
		return sdk.Info{}, err
	}
	fingerprint := fmt.Sprintf("fake-1-splitmix64-sha256-dims%d", e.dims)
	if e.sparse {
		fingerprint = fmt.Sprintf("fake-1-sparse-words-sha256-dims%d", e.dims)
	}
	if e.reranks {
		fingerprint = "fake-1-scores-sha256"
	}
	if e.faults.does["new-fingerprint"] {
		fingerprint += fmt.Sprintf("-pid%d", os.Getpid())
	}
	return sdk.Info{Name: "fake", Version: version, Models: []sdk.Model{{
		Name: "fake", Fingerprint: fingerprint, Dims: e.dims, Symmetric: true,
		MaxBatch: e.maxBatch, MaxBatchBytes: e.maxBatchBytes, Deterministic: true, Sparse: e.sparse,
		Reranks: e.reranks, Batches: e.batches,
	}}}, nil
}

// Embed implements sdk.Embedder.
func (e *embedder) Embed(ctx context.Context, _ string, kind sdk.Kind, texts []string) ([]sdk.Answer, error) {
	if err := e.record(kind, texts); err != nil {
		return nil, sdk.OutOfResources(err, 0)
	}
	e.leak()
	if err := e.faults.beforeCall(ctx, texts); err != nil {
		return nil, err
	}
	answers := make([]sdk.Answer, len(texts))
	var backing []float32
	if !e.sparse {
		backing = make([]float32, len(texts)*e.dims)
	}
	for i, text := range texts {
		a := &answers[i]
		a.Tokens = len(vector.TokenEnds(text))
		if a.Err = e.faults.textError(text); a.Err != nil {
			continue
		}
		if vector.Empty(text) {
			a.Empty = true
			continue
		}
		given := text
		if e.faults.does["other-vectors"] {
			given += " (another model)"
		}
		if e.sparse {
			a.Indices, a.Vector = vector.Sparse(given, e.dims)
		} else {
			a.Vector = backing[i*e.dims : (i+1)*e.dims]
			vector.Into(a.Vector, given)
		}
		e.faults.spoil(a, text)
	}
	return answers, nil
}

// Rerank implements sdk.Reranker.
func (e *embedder) Rerank(_ context.Context, _, query string, texts []string) ([]float32, error) {
	if err := e.record(sdk.Query, texts); err != nil {
		return nil, sdk.OutOfResources(err, 0)
	}
	return lists.Map(texts, func(text string) float32 { return vector.Score(query, text) }), nil
}

// record appends the call's line in one write, so that lines of several processes do not mix and a kill loses no
// started call.
func (e *embedder) record(kind sdk.Kind, texts []string) error {
	if e.calls == nil {
		return nil
	}
	call := vector.Call{Kind: kind.String(), Hashes: make([]string, len(texts))}
	for i, text := range texts {
		call.Hashes[i] = vector.Hash(text)
	}
	_, err := e.calls.Write(call.AppendLine(make([]byte, 0, 32+17*len(texts))))
	return err
}

// leak leaks as much memory as the faults ask for.
func (e *embedder) leak() {
	if e.faults.leak == 0 {
		return
	}
	b := make([]byte, e.faults.leak)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	e.mu.Lock()
	e.leaked = append(e.leaked, b)
	e.mu.Unlock()
}

// Tokenize implements sdk.Tokenizer: a token is a run of what is not white space.
func (e *embedder) Tokenize(_ context.Context, _ string, texts []string) (sdk.Tokens, error) {
	if e.faults.does["no-tokens"] {
		return sdk.Tokens{}, status.Error(codes.Unimplemented, "told not to know tokens")
	}
	return sdk.Tokens{Ends: lists.Map(texts, vector.TokenEnds)}, nil
}

// job is a batch job, which ends immediately.
type job struct{ ids, texts []string }

// SubmitBatch implements sdk.Batcher.
func (e *embedder) SubmitBatch(_ context.Context, _, nonce string, ids, texts []string) (sdk.Job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs[nonce] = job{ids, texts}
	return sdk.Job{ID: nonce, State: embed.JobRunning}, nil
}

// PollBatch implements sdk.Batcher.
func (e *embedder) PollBatch(_ context.Context, _, nonce, _ string) (sdk.Job, error) { //nolint:unparam // a contract
	if _, known := e.find(nonce); !known {
		return sdk.Job{State: embed.JobUnknown}, nil
	}
	return sdk.Job{ID: nonce, State: embed.JobEnded}, nil
}

func (e *embedder) find(nonce string) (j job, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, known = e.jobs[nonce]
	return j, known
}

// FetchBatch implements sdk.Batcher.
func (e *embedder) FetchBatch(ctx context.Context, model, name string, give func(string, sdk.Answer) error) error {
	j, known := e.find(name)
	if !known {
		return sdk.Misconfigured(embed.ErrNoBatches)
	}
	answers, err := e.Embed(ctx, model, sdk.Document, j.texts)
	for i := range answers {
		if err == nil {
			err = give(j.ids[i], answers[i])
		}
	}
	return err
}

// CancelBatch implements sdk.Batcher.
func (e *embedder) CancelBatch(context.Context, string, string) error { return nil }
