// Package sdk is for authors of plugins in Go. Implement Embedder, call Serve from main:
//
//	func main() { sdk.Serve(&myEmbedder{}) }
//
// Serve does everything the contract (plugins/proto/embedder.proto) asks of a program rather than of a model: the
// handshake, TLS, limits on messages, ending when the host ends, and turning a panic of one call into an error of
// that call.
package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Kind says what texts are to the model.
type Kind = embed.Kind

// The kinds of text.
const (
	Document = embed.Document
	Query    = embed.Query
)

// Info is what a plugin is and what it offers.
type Info struct {
	Name    string // the program, e.g. "onnx"; 1 to 64 bytes
	Version string // its own version, at most 64 bytes
	Models  []Model
}

// Model is one of the models a plugin offers.
type Model struct {
	Name string
	// Fingerprint names everything that can change a vector: weights, tokenizer, pooling, normalisation, prefixes, token
	// limit, dims, precision. Make it a hash of contents, never of names or times. 1 to 256 printable ASCII characters.
	Fingerprint   string
	Dims          int             // 1 to 16,000; of a sparse model the size of its vocabulary, up to 16,777,216
	MaxTokens     int             // longer texts are cut; 0: not known
	Settings      []embed.Setting // what it goes by, for people to read: pooling, prefixes, limits
	Symmetric     bool            // documents and queries get the same vector for the same text
	MaxBatch      int             // most texts in one call; 0: no limit
	MaxBatchBytes int             // most bytes of text in one call; 0: no limit
	Deterministic bool            // the same text always gives the same vector, whatever else is in the batch
	Sparse        bool            // answers hold only the numbers that are not zero, with their Indices
	Reranks       bool            // a reranker: see Reranker. It makes no vectors; its Dims are 1
	Batches       bool            // its provider takes documents in batch jobs: see Batcher
}

// Answer is the answer for one text: a vector, Empty, or Err.
type Answer struct {
	Vector []float32 // exactly Dims wide, finite, not all zero; nil when Empty or Err is set
	// sparse models: the place of each number of Vector, from 0, rising; then Vector has 1 to 16,000 numbers, none zero
	Indices   []uint32
	Empty     bool // the text holds no token but special ones
	Truncated bool // the text was longer than MaxTokens and cut
	Tokens    int  // tokens the model saw; 0 when unknown
	Err       *TextError
}

// Embedder is what an author implements. Both methods may be called by several goroutines at the same time.
type Embedder interface {
	// Describe is called once after each start, before anything else. It may load models.
	Describe(ctx context.Context) (Info, error)
	// Embed returns one Answer per text, in the order given. Texts are valid UTF-8; there is at least one, and no more
	// than MaxBatch. An error fails the whole call: see Again, Misconfigured and OutOfResources; any other error is
	// taken as passing. The context ends when the host has lost interest.
	Embed(ctx context.Context, model string, kind Kind, texts []string) ([]Answer, error)
}

// ErrorClass tells the host what to do about a text that failed.
type ErrorClass int

// The classes of a text's error.
const (
	Invalid    ErrorClass = iota // cannot be embedded
	RetryLater                   // nothing is wrong with the text: again after Delay
	TooLong                      // longer than the plugin is willing to cut
	Refused                      // a provider's policy refuses it
)

// TextError is the failure of one text. Its message must not hold the text or a part of it.
type TextError struct {
	Class   ErrorClass
	Delay   time.Duration // with RetryLater: when to come again, at most an hour; 0: the host decides
	Message string
}

func (e *TextError) Error() string { return e.Message }

// callClass is what kind of failure a whole call had.
type callClass int

const (
	again callClass = iota
	misconfigured
	outOfResources
)

// callError is an error of a whole call with its class.
type callError struct {
	class callClass
	delay time.Duration
	err   error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// Again marks an error as passing: the same call may succeed after delay; 0 leaves the delay to the host.
func Again(err error, delay time.Duration) error {
	return &callError{class: again, delay: delay, err: err}
}

// Misconfigured marks an error that lasts until a person has changed something: a file, a key, the plugin itself.
func Misconfigured(err error) error {
	return &callError{class: misconfigured, err: err}
}

// OutOfResources marks an error that may pass and is less likely with fewer texts: memory, quota, a rate limit.
func OutOfResources(err error, delay time.Duration) error {
	return &callError{class: outOfResources, delay: delay, err: err}
}

// check returns what is wrong with a description. The host checks again and more; this tells the author early.
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
