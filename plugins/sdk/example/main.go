// Command embedsidecar-example is an embedder plugin for embedsidecar.
package main

import (
	"context"
	"hash/fnv"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

const name, dims = "example", 64

type embedder struct{}

// Describe says what the plugin offers. The fingerprint covers everything that can change a vector: change it with
// Embed.
func (embedder) Describe(context.Context) (sdk.Info, error) {
	return sdk.Info{Name: name, Version: "0.1.0", Models: []sdk.Model{{
		Name: name, Fingerprint: name + "-words-64:1", Dims: dims, Symmetric: true, MaxBatch: 256, Deterministic: true,
	}}}, nil
}

// Embed returns one answer for each text, in order: here, counts of words by hash. Put your model here.
func (embedder) Embed(_ context.Context, _ string, _ sdk.Kind, texts []string) ([]sdk.Answer, error) {
	answers := make([]sdk.Answer, len(texts))
	for i, text := range texts {
		vector, words := make([]float32, dims), strings.Fields(text)
		for _, word := range words {
			h := fnv.New32a()
			h.Write([]byte(word))
			vector[h.Sum32()%dims]++
		}
		answers[i] = sdk.Answer{Vector: vector, Tokens: len(words), Empty: len(words) == 0}
	}
	return answers, nil
}

func main() { sdk.Serve(embedder{}) }
