// Package sdk is for authors of plugins in Go. Implement Embedder and call Serve from main:
//
//	func main() { sdk.Serve(&myEmbedder{}) }
//
// Serve does everything that the contract (plugins/proto/embedder.proto) requires of the program itself: the handshake,
// TLS, message limits, exiting when the host ends, and recovering from panics in calls.
package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Kind says whether texts are documents or queries.
type Kind = embed.Kind

// The kinds of text.
const (
	Document = embed.Document
	Query    = embed.Query
)

// Info describes a plugin and its models.
type Info struct {
	Name    string // the program, e.g. "onnx"; 1 to 64 bytes
	Version string // its own version, at most 64 bytes
	Models  []Model
}

// Model is one of the models a plugin offers.
type Model struct {
	Name string
	// Fingerprint covers everything that can change a vector: weights, tokenizer, pooling, normalisation, prefixes,
	// token limit, dims, precision. Make it a hash of contents, never of names or times. 1 to 256 printable ASCII
	// characters.
	Fingerprint   string
	Dims          int             // 1 to 16,000; of a sparse model the size of its vocabulary, up to 16,777,216
	MaxTokens     int             // longer texts are cut; 0: not known
	Settings      []embed.Setting // effective settings, shown to users: pooling, prefixes, limits
	Symmetric     bool            // documents and queries get the same vector for the same text
	MaxBatch      int             // limit of texts in one call; 0: none
	MaxBatchBytes int             // limit of bytes of text in one call; 0: none
	Deterministic bool            // the same text always gives the same vector, whatever else is in the batch
	Sparse        bool            // answers hold only the non-zero numbers, with their Indices
	Reranks       bool            // a reranker, which makes no vectors: see Reranker; Dims must be 1
	Batches       bool            // its provider supports batch jobs: see Batcher
}

// Answer is the answer for one text: a vector, Empty, or Err.
type Answer struct {
	Vector []float32 // exactly Dims wide, finite, not all zero; nil when Empty or Err is set
	// sparse models: the sorted index of each number of Vector, from 0; Vector then has 1 to 16,000 non-zero numbers
	Indices   []uint32
	Empty     bool // the text has no tokens except special ones
	Truncated bool // the text was longer than MaxTokens and cut
	Tokens    int  // tokens the model saw; 0 when unknown
	Err       *TextError
}

// Embedder is implemented by the author. Both methods must be safe for concurrent use.
type Embedder interface {
	// Describe is called after each start, and nothing else until it has succeeded once. It may load models.
	Describe(ctx context.Context) (Info, error)
	// Embed returns one Answer per text, in order. Texts are valid UTF-8; there are 1 to MaxBatch. An error fails the
	// whole call: see Again, Misconfigured and OutOfResources; any other error counts as temporary. The context ends
	// when the host cancels the call.
	Embed(ctx context.Context, model string, kind Kind, texts []string) ([]Answer, error)
}

// ErrorClass tells the host how to handle a failed text.
type ErrorClass int

// The classes of a text's error.
const (
	Invalid    ErrorClass = iota // cannot be embedded
	RetryLater                   // the text is fine: retry after Delay
	TooLong                      // too long, and the plugin does not cut it
	Refused                      // a provider's policy refuses it
)

// TextError is the error of one text. Its message must not contain the text or a part of it.
type TextError struct {
	Class   ErrorClass
	Delay   time.Duration // with RetryLater: retry delay, at most an hour; 0: the host decides
	Message string
}

func (e *TextError) Error() string { return e.Message }

// callError is an error of a whole call with the status code of its class.
type callError struct {
	code  codes.Code
	delay time.Duration
	err   error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// Again marks an error as temporary: the same call may succeed after delay; 0 leaves the delay to the host.
func Again(err error, delay time.Duration) error {
	return &callError{codes.Unavailable, delay, err}
}

// Misconfigured marks an error that lasts until a user changes something: a file, a key, the plugin itself.
func Misconfigured(err error) error {
	return &callError{codes.FailedPrecondition, 0, err}
}

// OutOfResources marks a temporary error that is less likely with fewer texts: memory, quota, a rate limit.
func OutOfResources(err error, delay time.Duration) error {
	return &callError{codes.ResourceExhausted, delay, err}
}

// check validates a description, so that authors see errors early. The host checks more.
func (i Info) check() error {
	if i.Name == "" {
		return errors.New("describe: the plugin has no name")
	}
	if len(i.Models) == 0 {
		return errors.New("describe: the plugin offers no model")
	}
	seen := map[string]bool{}
	for _, m := range i.Models {
		switch {
		case m.Name == "" || seen[m.Name]:
			return fmt.Errorf("describe: model name %q is empty or occurs twice", m.Name)
		case m.Fingerprint == "":
			return fmt.Errorf("describe: model %q has no fingerprint", m.Name)
		case m.Dims <= 0 || m.Dims > pluginpb.MaxSparseDims || m.Dims > pluginpb.MaxDims && !m.Sparse:
			return fmt.Errorf("describe: model %q has %d dims", m.Name, m.Dims)
		case m.Reranks && (m.Dims != 1 || m.Sparse):
			return fmt.Errorf("describe: model %q is a reranker, and its dims are not 1", m.Name)
		case m.MaxTokens < 0 || m.MaxBatch < 0 || m.MaxBatchBytes < 0:
			return fmt.Errorf("describe: model %q has a negative limit", m.Name)
		}
		seen[m.Name] = true
	}
	return nil
}
