package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// Sides of a text.
const (
	right = "right"
	left  = "left"
)

// override applies a user's settings.
func (s *settings) override(by Settings) error {
	switch by.Pooling {
	case "":
	case poolMean, poolFirst, poolLast, poolMax, poolWeighted, poolRoot, poolSplade:
		s.pooling, s.poolingSet, s.from[settingPooling] = by.Pooling, true, fromUser
		if s.pooling != poolSplade {
			s.weights = nil
		}
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

// fingerprint covers everything that can change a vector by more than rounding. Settings added later have a line only
// if they are used, so that existing fingerprints do not change.
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
	if s.weights != nil {
		line("query weights", f.Sums[s.weightsFile])
	}
	if s.keep > 0 && s.keep < dims {
		line("dims kept", s.keep)
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}
