package pipeline

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Chunking says how the texts of a pipeline are cut into chunks, each with a vector of its own. The zero value: not
// at all.
type Chunking struct {
	Strategy string `json:"strategy,omitempty"` // ChunkTokens, ChunkSentences or ChunkMarkdown; "": none
	Tokens   int    `json:"tokens,omitempty"`   // most tokens of a chunk, its context line included
	Overlap  int    `json:"overlap,omitempty"`  // most tokens that a chunk repeats of the one before it
	// SQL expression over the row that begins each chunk's context line; "": none
	Context string `json:"context,omitempty"`
	NoText  bool   `json:"no_text,omitempty"` // the text of chunks is not stored, only where it is
}

// The strategies, as they are written.
const (
	ChunkTokens    = "tokens"
	ChunkSentences = "sentences"
	ChunkMarkdown  = "markdown"
)

// Limits of the settings.
const (
	DefaultChunkTokens = 256
	MinChunkTokens     = 16
	MaxChunkTokens     = 8192
)

// On reports whether texts are cut.
func (c Chunking) On() bool { return c.Strategy != "" }

// ChunkingMistake returns what is wrong with how texts shall be cut, or "".
func (s Spec) ChunkingMistake() string {
	if s.Chunking.On() && s.InSource() {
		return "chunks need an embedding table (into: {table: NAME}): a column of the row holds one vector"
	}
	return s.Chunking.mistake()
}

func (c Chunking) mistake() string {
	switch {
	case !c.On() && c != Chunking{}:
		return "chunking has settings and no strategy: tokens, sentences or markdown"
	case !c.On():
		return ""
	case c.Strategy != ChunkTokens && c.Strategy != ChunkSentences && c.Strategy != ChunkMarkdown:
		return fmt.Sprintf("there is no chunking strategy %q: none, tokens, sentences or markdown", c.Strategy)
	case c.Tokens < MinChunkTokens || c.Tokens > MaxChunkTokens:
		return fmt.Sprintf("chunks of %d tokens: from %d to %d are allowed", c.Tokens, MinChunkTokens, MaxChunkTokens)
	case c.Overlap < 0 || c.Overlap > c.Tokens/2:
		return fmt.Sprintf("an overlap of %d tokens: at most half of the %d of a chunk", c.Overlap, c.Tokens)
	}
	return ""
}

// ChunkedHash is the text hash, in the ledger, of a row whose text is cut: it covers all that chunks are made of. The
// number is that of the way of cutting: it changes when the same settings begin to give other chunks.
func (c Chunking) ChunkedHash(text, context string) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "chunks 1 %s %d %d %t %d\n", c.Strategy, c.Tokens, c.Overlap, c.NoText, len(context))
	_, _ = h.Write([]byte(context))
	_, _ = h.Write([]byte(text))
	return [sha256.Size]byte(h.Sum(nil))
}

// ChunkedHashExpression returns the SQL of ChunkedHash, of two text expressions.
func (c Chunking) ChunkedHashExpression(text, context string) string {
	context = "coalesce(" + context + ", '')"
	return fmt.Sprintf(`sha256(convert_to('chunks 1 %s %d %d %t ' || octet_length(convert_to(%s, pg_client_encoding()::name)) || E'\n' || %s || %s, pg_client_encoding()::name))`,
		c.Strategy, c.Tokens, c.Overlap, c.NoText, context, context, text)
}

// ContextExpression returns the SQL that makes the beginning of a context line from the row called r; NULL where
// there is none.
func (p *Pipeline) ContextExpression() string {
	if strings.TrimSpace(p.Chunking.Context) == "" {
		return "NULL::text"
	}
	return "(" + enclose(p.Chunking.Context) + ")::text"
}
