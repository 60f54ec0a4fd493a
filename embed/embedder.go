// Package embed turns texts into vectors: it hashes texts, leaves out what need not be embedded, reuses what is known
// and checks every answer before anything else may believe it. It has never heard of Postgres or of a plugin's
// process.
package embed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says what a text is to the model: many models want another prefix for a question than for what answers it.
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

// What an embedder may be told to use.
const (
	MaxThreads   = 256 // far more than a small model can use
	MaxProcesses = 64
)

// Description is what an embedder says of itself and of one of its models.
type Description struct {
	Plugin  string // program, e.g. "onnx"
	Version string // the program's own version
	Model   string // e.g. "all-MiniLM-L6-v2"
	// Fingerprint names everything that can change a vector: weights, tokenizer, pooling, prefixes, token limit, dims,
	// precision.
	Fingerprint   string
	Dims          int  // width of every vector
	MaxTokens     int  // longer texts are cut; 0: no limit known
	MaxBatch      int  // texts per call; 0: no limit
	MaxBatchBytes int  // bytes of text per call; 0: no limit
	Deterministic bool // the same text always gives the same vector
	Sparse        bool // vectors are pairs of places and numbers: see Pairs
	Reranks       bool // it scores pairs of a query and a text, and makes no vectors: see Reranker
	Batches       bool // its provider takes documents in batch jobs: see Batcher
	Settings      []Setting
}

// Setting is one thing that a model goes by, for people to read, and where it comes from: a file, the configuration,
// or nobody.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Result is the answer for one text.
type Result struct {
	Vector    []float32 // Dims wide, or pairs; finite and not all zero; nil when Empty or Err is set
	Empty     bool      // the text holds no token: it has no vector, and that is no error
	Truncated bool      // the text was longer than MaxTokens and cut
	Tokens    int       // tokens the model saw; 0 when unknown
	Sent      bool      // the embedder was asked for it on behalf of this very text: nobody knew it. A Service says so
	Err       error     // this text alone failed: a *TextError
}

// Embedder turns texts into vectors. Implementations are safe for concurrent use.
type Embedder interface {
	// Describe returns what the embedder is. It is cheap after the first call.
	Describe(ctx context.Context) (Description, error)
	// Embed returns one Result per text, in the order given. A non-nil error means that no text was answered; Classify
	// tells whether the same call may succeed later. Texts are valid UTF-8.
	Embed(ctx context.Context, kind Kind, texts []string) ([]Result, error)
}

// Class tells what to do about an error.
type Class string

// The classes of errors. Only Data errors use up a task's attempts.
const (
	Transient     Class = "transient"     // the same call may succeed later: provider down, process restarting, deadline
	Configuration Class = "configuration" // a person must change something: plugin missing, wrong checksum, wrong width
	Data          Class = "data"          // this text cannot be embedded
	Resource      Class = "resource"      // out of memory, disk or descriptors: later, and smaller
	Crash         Class = "crash"         // the embedder died while it held these texts
)

// TextError is the failure of one text.
type TextError struct {
	Class   Class
	Code    string // short and fixed: "too_long", "refused", "invalid", "zero_vector"
	Message string // never holds the text
	// RetryAfter is when an error that is not of class Data asks to be tried again; 0: it does not say.
	RetryAfter time.Duration
}

func (e *TextError) Error() string { return fmt.Sprintf("embed text: %s: %s", e.Code, e.Message) }

// Error is the failure of a whole call.
type Error struct {
	Class      Class
	Code       string        // short and fixed: "unavailable", "deadline", "crashed", "checksum", "wrong_count"
	RetryAfter time.Duration // what the embedder asked for; 0: nothing
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("embed: %s: %s", e.Code, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Classify returns the class and code of any error that an Embedder returned. What is unknown is transient: it is tried
// again, and it burns no attempt of a row that may be innocent.
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
