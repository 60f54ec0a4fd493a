package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/safetensors"
)

// readQueryWeights reads the weights of query tokens, from the folder of a SparseStaticEmbedding.
func (s *settings) readQueryWeights(f *folder.Folder, in string) error {
	var config struct {
		Path string `json:"path"`
	}
	if _, err := f.ReadJSON(path.Join(in, "config.json"), &config); err != nil {
		return err
	}
	s.weightsFile = path.Join(in, "model.safetensors")
	if config.Path != "" {
		return fmt.Errorf("%s/config.json: weights in %q are not read, only those in %s", in, config.Path, s.weightsFile)
	}
	data, err := f.Read(s.weightsFile, maxDenseBytes)
	if err != nil {
		return fmt.Errorf("weights of a query's tokens: %w", err)
	}
	tensors, err := safetensors.Read(bytes.NewReader(data), int64(len(data)), "weight")
	if err != nil {
		return fmt.Errorf("%s: %w", s.weightsFile, err)
	}
	t := tensors["weight"]
	if t == nil || len(t.Shape) != 1 || t.Floats == nil {
		return fmt.Errorf("%s: there is no tensor weight with a number for each token", s.weightsFile)
	}
	s.weights = t.Floats
	return sameTokenizer(f, path.Join(in, tokenizerFile))
}

// sameTokenizer refuses a query tokenizer that differs from that of documents.
func sameTokenizer(f *folder.Folder, name string) error {
	var both [2]map[string]any
	for i, file := range []string{tokenizerFile, name} {
		data, err := f.Read(file, maxTokenizerBytes)
		if err != nil {
			return err
		}
		if json.Unmarshal(data, &both[i]) != nil {
			return fmt.Errorf("%s: it is no JSON, or a part of it: fetch it again", file)
		}
		for _, key := range []string{"truncation", "padding", "post_processor"} { // irrelevant for a query
			delete(both[i], key)
		}
	}
	if !reflect.DeepEqual(both[0], both[1]) {
		return fmt.Errorf("%s makes other tokens than %s, which is not supported", name, tokenizerFile)
	}
	return nil
}

// weigh makes the vectors of queries without the network: the index is the token's id, and the number is its weight in
// the table. Queries get no special tokens.
func (m *Model) weigh(ctx context.Context, texts []string) ([]embed.Result, error) {
	limit, results := m.settings.maxTokens, make([]embed.Result, len(texts))
	most := limit + 1 // shows that it is longer
	if m.settings.truncateLeft {
		most = maxTextTokens
	}
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tokens, err := m.tokenizer.bare(text, most)
		if prefix := m.settings.prefixes[embed.Query]; prefix != "" && len(tokens) > 0 && err == nil {
			tokens, err = m.tokenizer.bare(prefix+text, most)
		}
		if err == nil && int(slices.Max(append(slices.Clip(tokens), 0))) >= min(int(m.last)+1, len(m.settings.weights)) {
			err = errors.New("the text contains a special token that the model does not know")
		}
		if err != nil {
			results[i].Err = &embed.TextError{Class: embed.Data, Code: "tokenize", Message: err.Error()}
			continue
		}
		r := embed.Result{Empty: len(tokens) == 0, Truncated: len(tokens) > limit, Tokens: min(len(tokens), limit)}
		tokens = slices.Clone(m.side(tokens, r.Tokens))
		slices.Sort(tokens)
		var places []uint32
		var numbers []float32
		for _, token := range slices.Compact(tokens) {
			if x := m.settings.weights[token]; x != 0 {
				places, numbers = append(places, uint32(token)), append(numbers, x)
			}
		}
		r.Vector = embed.Pairs(places, numbers)
		if keep := m.settings.keep; keep > 0 && keep < len(numbers) {
			r.Vector = largestPairs(r.Vector, keep)
		}
		if m.settings.normalize {
			normalize(r.Vector, true)
		}
		results[i] = r
	}
	return results, nil
}
