package config

import (
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// chunkingSchema reads `chunking: {strategy: markdown, tokens: 256, overlap: 32, context: title}`.
func chunkingSchema(s *schema, c *pipeline.Chunking) {
	s.field("strategy").value = func(v string) error {
		switch v {
		case "none":
			c.Strategy = ""
			return nil
		case pipeline.ChunkTokens, pipeline.ChunkSentences, pipeline.ChunkMarkdown:
			c.Strategy = v
			return nil
		}
		return fmt.Errorf("expected none, tokens, sentences or markdown, not %q", v)
	}
	s.field("tokens").value = func(v string) (err error) {
		c.Tokens, err = parseInt(v, pipeline.MinChunkTokens, pipeline.MaxChunkTokens)
		return err
	}
	s.field("overlap").value = func(v string) (err error) {
		c.Overlap, err = parseInt(v, 0, pipeline.MaxChunkTokens/2)
		return err
	}
	s.field("context").value = intoExpression(&c.Context)
	s.field("store_text").value = func(v string) error {
		stored, err := parseBool(v)
		c.NoText = !stored
		return err
	}
}
