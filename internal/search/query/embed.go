package query

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Vectors is the result of embedding some texts.
type Vectors struct {
	Plugin      string      `json:"plugin"`
	Model       string      `json:"model"`
	Fingerprint string      `json:"fingerprint"`
	Dims        int         `json:"dims"`
	Embeddings  []Embedding `json:"embeddings"`

	Remarks []string `json:"-"` // about texts that were truncated or have nothing to embed
	Failed  error    `json:"-"` // about texts that have no vector, each with its number; nil: none
}

// Embedding is the result for one text. It does not repeat the text.
type Embedding struct {
	Index     int       `json:"index"`
	Tokens    int       `json:"tokens,omitempty"`
	Truncated bool      `json:"truncated"`
	Empty     bool      `json:"empty"`
	Error     string    `json:"error,omitempty"`
	Indices   []uint32  `json:"indices,omitempty"` // of a sparse model: the positions of the vector's numbers, from 0
	Vector    []float32 `json:"vector"`
	Text      string    `json:"-"` // the vector as pgvector writes it; "" for none
}

// Texts returns the arguments, with "-" replaced by the lines of the input.
func Texts(args []string, input io.Reader) ([]string, error) {
	var texts []string
	for _, arg := range args {
		if arg != "-" {
			texts = append(texts, arg)
			continue
		}
		lines := bufio.NewReader(input)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				texts = append(texts, strings.TrimRight(line, "\r\n"))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read texts from standard input: %w", err)
			}
		}
	}
	for i, text := range texts {
		if strings.ToValidUTF8(text, "") != text {
			return nil, problem.New(problem.Usage, fmt.Errorf("text %d is not UTF-8", i+1))
		}
	}
	return texts, nil
}

// Embed embeds texts with the default model of the configuration.
func Embed(ctx context.Context, source embedders.Source, kind embed.Kind, texts []string) (v *Vectors, err error) {
	source.Brief = true
	embedder, _, err := source.Runner("", "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, embedder.Close()) }()
	about, err := embedder.Describe(ctx)
	if err != nil {
		return nil, err
	}
	results, err := embed.All(ctx, embedder, about, kind, texts)
	if err != nil {
		return nil, err
	}
	return vectors(about, results), nil
}

func vectors(about embed.Description, results []embed.Result) *Vectors {
	v := &Vectors{
		Plugin: about.Plugin, Model: about.Model, Fingerprint: about.Fingerprint, Dims: about.Dims,
		Embeddings: make([]Embedding, len(results)),
	}
	var failed []error
	for i, r := range results {
		e := Embedding{Index: i, Tokens: r.Tokens, Truncated: r.Truncated, Empty: r.Empty, Vector: r.Vector}
		if r.Vector != nil {
			e.Text = pipeline.VectorText(about.Sparse, about.Dims, r.Vector)
			if about.Sparse {
				e.Indices, e.Vector = embed.SplitPairs(r.Vector)
			}
		}
		switch {
		case r.Err != nil:
			e.Error = r.Err.Error()
			failed = append(failed, fmt.Errorf("text %d: %w", i+1, r.Err))
		case r.Empty:
			v.Remarks = append(v.Remarks, fmt.Sprintf("text %d holds nothing to embed: it has no vector", i+1))
		case r.Truncated && about.MaxTokens == 0:
			v.Remarks = append(v.Remarks, fmt.Sprintf("text %d is longer than the model takes: it was cut", i+1))
		case r.Truncated:
			v.Remarks = append(v.Remarks, fmt.Sprintf("text %d is longer than the %d tokens the model takes: it was cut", i+1,
				about.MaxTokens))
		}
		v.Embeddings[i] = e
	}
	if len(failed) > 0 {
		v.Failed = problem.New(problem.Failed, errors.Join(failed...))
	}
	return v
}
