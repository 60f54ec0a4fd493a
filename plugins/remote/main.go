// Command embedsidecar-remote is a plugin that gets vectors from a server over HTTP. It supports the APIs of OpenAI and
// compatible servers, Ollama, Text Embeddings Inference, Cohere, Voyage and others. It is configured by the
// environment; docs/remote.md lists the settings.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/embedsidecar/embedsidecar/plugins/remote/client"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// version is set when the program is built.
var version = "unknown"

func main() {
	sdk.Serve(&embedder{getenv: os.Getenv, log: slog.New(slog.NewJSONHandler(os.Stderr, nil))})
}

// embedder implements sdk.Embedder with a client.
type embedder struct {
	getenv func(string) string
	log    *slog.Logger

	mu     sync.Mutex
	name   string
	client *client.Client // nil until the settings are valid; other calls come after Describe has succeeded
}

// open reads the settings and makes the client. The host gets errors in the settings as answers.
func (e *embedder) open() (*client.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		return e.client, nil
	}
	s, err := readSettings(e.getenv)
	if err != nil {
		return nil, err
	}
	s.options.UserAgent = "embedsidecar-remote/" + version
	s.options.Log = e.log
	if s.options.HTTP, err = s.network.Client(s.options.Most); err != nil {
		return nil, fmt.Errorf("settings of the remote embedder: %w", err)
	}
	e.name, e.client = s.name, client.New(s.options)
	return e.client, nil
}

// Describe implements sdk.Embedder.
func (e *embedder) Describe(ctx context.Context) (sdk.Info, error) {
	c, err := e.open()
	if err != nil {
		return sdk.Info{}, sdk.Misconfigured(err)
	}
	m, err := c.Describe(ctx)
	if err != nil {
		return sdk.Info{}, err
	}
	m.Name = e.name
	return sdk.Info{Name: "remote", Version: version, Models: []sdk.Model{m}}, nil
}

// Embed implements sdk.Embedder.
func (e *embedder) Embed(ctx context.Context, _ string, kind sdk.Kind, texts []string) ([]sdk.Answer, error) {
	return e.client.Embed(ctx, kind, texts)
}

// Rerank implements sdk.Reranker.
func (e *embedder) Rerank(ctx context.Context, _, query string, texts []string) ([]float32, error) {
	return e.client.Rerank(ctx, query, texts)
}

// SubmitBatch implements sdk.Batcher.
func (e *embedder) SubmitBatch(ctx context.Context, _, nonce string, ids, texts []string) (sdk.Job, error) {
	return e.client.SubmitBatch(ctx, nonce, ids, texts)
}

// PollBatch implements sdk.Batcher.
func (e *embedder) PollBatch(ctx context.Context, _, nonce, job string) (sdk.Job, error) {
	return e.client.PollBatch(ctx, nonce, job)
}

// FetchBatch implements sdk.Batcher.
func (e *embedder) FetchBatch(ctx context.Context, _, job string, give func(string, sdk.Answer) error) error {
	return e.client.FetchBatch(ctx, job, give)
}

// CancelBatch implements sdk.Batcher.
func (e *embedder) CancelBatch(ctx context.Context, _, job string) error {
	return e.client.CancelBatch(ctx, job)
}
