package embed

import (
	"context"
	"errors"
)

// Batcher is what an Embedder implements whose provider may embed documents in batch jobs: within hours, and for less.
// Its methods are for models with Description.Batches. Errors are those of Embed.
type Batcher interface {
	// Submit makes a job of texts that have these ids. With an error nobody knows whether there is one: Poll finds it by
	// the nonce if there is.
	Submit(ctx context.Context, nonce string, ids, texts []string) (Job, error)
	// Poll tells of a job, by its id or, where that is empty, by its nonce.
	Poll(ctx context.Context, nonce, id string) (Job, error)
	// Fetch hands on what a job has given, in any order. Some texts may have no result, and ids may be of nobody.
	Fetch(ctx context.Context, id string, each func(id string, r Result) error) error
	// Cancel asks for a job to be given up.
	Cancel(ctx context.Context, id string) error
}

// Limits of a batch job: those of the contract with plugins.
const (
	MaxJobTexts = 50_000
	MaxJobBytes = 16 << 20
)

// JobState is how far a batch job is.
type JobState string

// The states of a job.
const (
	JobUnknown JobState = "unknown" // the provider knows no such job
	JobRunning JobState = "running"
	JobEnded   JobState = "ended"  // there are results, perhaps not of all texts
	JobFailed  JobState = "failed" // there is none
)

// Job is a batch job as the provider tells of it.
type Job struct {
	ID      string // the provider's; "": not known
	State   JobState
	Message string // why it failed, or ended early: a code, or two ("expired: too_many_requests")
}

// ErrNoBatches means that an embedder has no batch jobs.
var ErrNoBatches = errors.New("the model has no batch jobs")

// Batcher returns what makes batch jobs with the service's embedder.
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
