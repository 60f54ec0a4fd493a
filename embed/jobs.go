package embed

import (
	"context"
	"errors"
)

// Batcher is implemented by an Embedder whose provider offers batch jobs for documents, which take hours and cost less.
// Its methods are for models with Description.Batches. Errors are those of Embed.
type Batcher interface {
	// Submit makes a job of texts with ids. After an error the job may still exist; Poll then finds it by the nonce.
	Submit(ctx context.Context, nonce string, ids, texts []string) (Job, error)
	// Poll returns the state of a job, by its id or, if that is empty, by its nonce.
	Poll(ctx context.Context, nonce, id string) (Job, error)
	// Fetch passes on the results of a job, in any order. Some texts may have no result, and some ids may be unknown.
	Fetch(ctx context.Context, id string, each func(id string, r Result) error) error
	// Cancel cancels a job.
	Cancel(ctx context.Context, id string) error
}

// Limits of a batch job, as in the plugin contract.
const (
	MaxJobTexts = 50_000
	MaxJobBytes = 16 << 20
)

// JobState is the state of a batch job.
type JobState string

// The states of a job.
const (
	JobUnknown JobState = "unknown" // the provider knows no such job
	JobRunning JobState = "running"
	JobEnded   JobState = "ended"  // results are available, perhaps not for all texts
	JobFailed  JobState = "failed" // there is none
)

// Job is a batch job as reported by its provider.
type Job struct {
	ID      string // the provider's; "": not known
	State   JobState
	Message string // why it failed, or ended early: a code, or two ("expired: too_many_requests")
}

// ErrNoBatches means that an embedder has no batch jobs.
var ErrNoBatches = errors.New("the model has no batch jobs")

// Batcher returns the service's embedder as a Batcher.
func (s *Service) Batcher(ctx context.Context) (Batcher, error) {
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if b, ok := s.embedder.(Batcher); ok && d.Batches {
		return b, nil
	}
	return nil, &Error{Class: Configuration, Code: "no_batches", Err: ErrNoBatches}
}
