package main

import (
	"context"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// job is a batch job, which has ended as soon as it is made.
type job struct {
	nonce      string
	ids, texts []string
}

// SubmitBatch implements sdk.Batcher.
func (e *embedder) SubmitBatch(_ context.Context, _, nonce string, ids, texts []string) (sdk.Job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, job{nonce, ids, texts})
	return sdk.Job{ID: nonce, State: embed.JobRunning}, nil
}

// PollBatch implements sdk.Batcher.
func (e *embedder) PollBatch(_ context.Context, _, nonce, _ string) (sdk.Job, error) { //nolint:unparam // a contract
	if e.find(nonce) == nil {
		return sdk.Job{State: embed.JobUnknown}, nil
	}
	return sdk.Job{ID: nonce, State: embed.JobEnded}, nil
}

func (e *embedder) find(nonce string) *job {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.jobs {
		if e.jobs[i].nonce == nonce {
			return &e.jobs[i]
		}
	}
	return nil
}

// FetchBatch implements sdk.Batcher.
func (e *embedder) FetchBatch(ctx context.Context, model, name string, give func(string, sdk.Answer) error) error {
	j := e.find(name)
	if j == nil {
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

// PollBatch implements pluginpb.EmbedderServer.
func (b *breaker) PollBatch(ctx context.Context, req *pluginpb.PollBatchRequest) (*pluginpb.BatchStatus, error) {
	if b.does["any-job"] {
		return &pluginpb.BatchStatus{Job: "any", State: pluginpb.BatchState_BATCH_STATE_RUNNING}, nil
	}
	return b.EmbedderServer.PollBatch(ctx, req)
}
