package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// Options say what to open.
type Options struct {
	Folder  string // model folder: model.onnx, tokenizer.json, settings, SHA256SUMS
	Weights string // sha256 that the file of weights must have; "": what SHA256SUMS says
	Library string // shared library of ONNX Runtime, see FindLibrary
	Threads int    // threads that compute; 0: as many as there are CPUs for this process
	// Precision is which weights to use: "fp32", or "int8" for model_int8.onnx. "": model.onnx, whatever it holds.
	Precision string
	// Provider is what computes: "cpu" (the default), "auto", "cuda", "tensorrt", "openvino", "coreml", where the
	// library has it.
	Provider string
	Settings Settings // in place of the folder's
}

func threads(options Options) int {
	if options.Threads > 0 {
		return options.Threads
	}
	return usableCPUs()
}

// Settings are a user's own, in place of what the model folder says. The zero value changes nothing. Each of them
// that changes a vector changes the fingerprint.
type Settings struct {
	Pooling   string // "mean", "cls", "last", or "splade" for a sparse vector; "": as the folder says
	Normalize *bool  // vectors of length 1
	MaxTokens int    // special tokens included, 3 or more; 0: as the folder says
	LayerNorm *bool  // a vector's mean 0 and its variance 1, before some numbers are kept, as some models' cards do
	Truncate  string // the side that is cut off of a longer text, "right" or "left"; "": as the folder says
	// numbers of a vector that are kept, of a sparse one the largest; 0: all. What is kept is made length 1 again if the
	// whole was
	Dims           int
	DocumentPrefix *string // put before each document
	QueryPrefix    *string // put before each query
}

// Sides of a text.
const (
	right = "right"
	left  = "left"
)

// override replaces what the folder says.
func (s *settings) override(by Settings) error {
	switch by.Pooling {
	case "":
	case poolMean, poolFirst, poolLast, poolMax, poolWeighted, poolRoot, poolSplade:
		s.pooling, s.poolingSet, s.from[settingPooling] = by.Pooling, true, fromUser
	default:
		return fmt.Errorf("pooling %q is not known: want %s, %s, %s, %s, %s, %s or %s", by.Pooling, poolMean, poolFirst,
			poolLast, poolMax, poolWeighted, poolRoot, poolSplade)
	}
	if by.Normalize != nil {
		s.normalize, s.from[settingNormalize] = *by.Normalize, fromUser
	}
	if by.LayerNorm != nil {
		s.layerNorm, s.from[settingLayerNorm] = by.LayerNorm, fromUser
	}
	if by.MaxTokens != 0 {
		s.maxTokens, s.from[settingMaxTokens] = by.MaxTokens, fromUser
	}
	switch by.Truncate {
	case "":
	case right, left:
		s.truncateLeft = by.Truncate == left
	default:
		return fmt.Errorf("truncation side %q is not known: want %s or %s", by.Truncate, right, left)
	}
	if by.Dims < 0 {
		return fmt.Errorf("%d dims: want 1 or more", by.Dims)
	}
	if by.Dims > 0 {
		s.keep = by.Dims
	}
	for kind, prefix := range map[embed.Kind]*string{embed.Document: by.DocumentPrefix, embed.Query: by.QueryPrefix} {
		if prefix != nil {
			s.prefixes[kind], s.from[prefixSettings[kind]] = *prefix, fromUser
		}
	}
	return nil
}

// fingerprint names everything that can change a vector by more than rounding. What came later than the first models
// has a line only where it is used, so that their fingerprints stay as they are.
func fingerprint(f *folder.Folder, g *graph, s settings, dims int) string {
	hash := sha256.New()
	line := func(key string, value any) { _, _ = fmt.Fprintf(hash, "%s=%q\n", key, fmt.Sprint(value)) }
	line("format", "embedsidecar onnx 1")
	line("weights", f.Sums[g.file])
	for _, name := range g.External {
		line("weights "+name, f.Sums[path.Clean(name)])
	}
	line("tokenizer", f.Sums[tokenizerFile])
	line("pooling", s.pooling)
	line("normalize", s.normalize)
	line("document prefix", s.prefixes[embed.Document])
	line("query prefix", s.prefixes[embed.Query])
	line("max tokens", s.maxTokens)
	line("dims", dims)
	line("precision", g.Precision)
	if s.truncateLeft {
		line("truncate", left)
	}
	if s.tokenizer.changed != "" {
		line("tokenizer_config", s.tokenizer.changed)
	}
	for _, d := range s.dense {
		line("dense", f.Sums[d.file])
		line("tanh", d.tanh)
	}
	if s.layerNorm != nil && *s.layerNorm {
		line("layer norm", true)
	}
	if s.pooling == poolRerank {
		line("raw", s.raw)
	}
	if s.loggedTwice {
		line("logged", "twice")
	}
	if s.tasked {
		line("tasks", s.tasks)
	}
	if s.keep > 0 && s.keep < dims {
		line("dims kept", s.keep)
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}
