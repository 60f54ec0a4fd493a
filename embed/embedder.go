// Package embed turns texts into vectors: it hashes texts, skips what need not be embedded, reuses known vectors and
// handles the errors of embedders. It knows neither Postgres nor plugin processes.
package embed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says whether a text is a document or a query: many models have different prefixes for them.
type Kind int

// The kinds of text.
const (
	Document Kind = iota
	Query
)

// String returns the kind as flags and logs spell it.
func (k Kind) String() string {
	if k == Query {
		return "query"
	}
	return "document"
}

// Limits of an embedder's settings.
const (
	MaxThreads   = 256 // more than a small model can use
	MaxProcesses = 64
)

// Description describes an embedder and one of its models.
type Description struct {
	Plugin  string // program, e.g. "onnx"
	Version string // the program's own version
	Model   string // e.g. "all-MiniLM-L6-v2"
	// Fingerprint covers everything that can change a vector: weights, tokenizer, pooling, prefixes, token limit, dims,
	// precision.
	Fingerprint   string
	Dims          int  // width of every vector
	MaxTokens     int  // longer texts are cut; 0: no limit known
	MaxBatch      int  // texts per call; 0: no limit
	MaxBatchBytes int  // bytes of text per call; 0: no limit
	Deterministic bool // the same text always gives the same vector
	Sparse        bool // vectors are pairs of index and number: see Pairs
	Reranks       bool // it scores pairs of a query and a text, and makes no vectors: see Reranker
	Batches       bool // its provider supports batch jobs: see Batcher
	Settings      []Setting
}

// Setting is an effective setting of a model, shown to users, and its source: a file, the configuration, or a default.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Result is the answer for one text.
type Result struct {
	Vector    []float32 // Dims wide, or pairs; finite and not all zero; nil when Empty or Err is set
	Empty     bool      // the text has no token, so it has no vector; not an error
	Truncated bool      // the text was longer than MaxTokens and cut
	Tokens    int       // tokens the model saw; 0 when unknown
	Sent      bool      // the text was sent to the embedder for this result, not cached or shared; set by a Service
	Err       error     // this text alone failed: a *TextError
}

// Embedder turns texts into vectors. Implementations are safe for concurrent use.
type Embedder interface {
	// Describe returns what the embedder is. It is cheap after the first call.
	Describe(ctx context.Context) (Description, error)
	// Embed returns one Result per text, in order. A non-nil error means that no text was answered; Classify tells
	// whether to retry. Texts are valid UTF-8.
	Embed(ctx context.Context, kind Kind, texts []string) ([]Result, error)
}

// Class tells how to handle an error.
type Class string

// The classes of errors. Only Data errors use up a task's attempts.
const (
	Transient     Class = "transient"     // the same call may succeed later: provider down, process restarting, deadline
	Configuration Class = "configuration" // a user must change something: plugin missing, wrong checksum, wrong width
	Data          Class = "data"          // this text cannot be embedded
	Resource      Class = "resource"      // out of memory, disk or descriptors: retry later with fewer texts
	Crash         Class = "crash"         // the embedder died while it held these texts
)

// TextError is the failure of one text.
type TextError struct {
	Class   Class
	Code    string // short and fixed: "too_long", "refused", "invalid", "zero_vector"
	Message string // never contains the text
	// RetryAfter is the requested retry delay, for classes other than Data; 0: none.
	RetryAfter time.Duration
}

func (e *TextError) Error() string { return fmt.Sprintf("embed text: %s: %s", e.Code, e.Message) }

// Error is the failure of a whole call.
type Error struct {
	Class      Class
	Code       string        // short and fixed: "unavailable", "deadline", "crashed", "checksum", "wrong_count"
	RetryAfter time.Duration // the embedder's requested retry delay; 0: none
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("embed: %s: %s", e.Code, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Classify returns the class and code of an Embedder's error. Unknown errors are transient: they are retried and use up
// no attempt of a row.
func Classify(err error) (Class, string) {
	if whole, ok := errors.AsType[*Error](err); ok {
		return whole.Class, whole.Code
	}
	if text, ok := errors.AsType[*TextError](err); ok {
		return text.Class, text.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Transient, "deadline"
	}
	return Transient, "unknown"
}
