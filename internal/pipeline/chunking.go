package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
)

// Chunking says how the texts of a pipeline are divided into chunks, each with its own vector. The zero value means not
// at all.
type Chunking struct {
	Strategy string `json:"strategy,omitempty"` // one of Chunk...; "": none
	Tokens   int    `json:"tokens,omitempty"`   // most tokens of a chunk, including its context line
	// most tokens, or with ByCharacters characters, that a chunk repeats of the previous one
	Overlap int `json:"overlap,omitempty"`
	// of ByCharacters: most characters of a chunk, and separators, as a JSON array; "": the default ones
	Characters int    `json:"characters,omitempty"`
	Separators string `json:"separators,omitempty"`
	// SQL expression over the row for the beginning of each chunk's context line; "": none
	Context string `json:"context,omitempty"`
	// of ByCharacters: the text between context and chunk; "": an empty line
	Between string `json:"between,omitempty"`
	NoText  bool   `json:"no_text,omitempty"` // the texts of chunks are not stored, only their positions
}

// The strategies in configurations.
const (
	ChunkTokens    = "tokens"
	ChunkSentences = "sentences"
	ChunkMarkdown  = "markdown"
	ChunkCharacter = "character"
	ChunkRecursive = "recursive"
	ChunkWhole     = "whole" // a text is one chunk: for embedding tables that also store the text
)

// Limits of the settings.
const (
	DefaultChunkTokens = 256
	MinChunkTokens     = 16
	MaxChunkTokens     = 8192

	DefaultChunkCharacters = 1000
	MaxChunkCharacters     = 4 << 20 // no longer text is divided
)

// On reports whether texts are chunked.
func (c Chunking) On() bool { return c.Strategy != "" }

// ByCharacters reports whether texts are divided as by LangChain's text splitters.
func (c Chunking) ByCharacters() bool {
	return c.Strategy == ChunkCharacter || c.Strategy == ChunkRecursive || c.Strategy == ChunkWhole
}

// Cuts returns the separators of ByCharacters, in the order of use.
func (c Chunking) Cuts() []string {
	var list []string
	if json.Unmarshal([]byte(c.Separators), &list) == nil && len(list) > 0 {
		return list
	}
	if c.Strategy == ChunkCharacter {
		return []string{"\n\n"}
	}
	return []string{"\n\n", "\n", " ", ""}
}

// Settings returns the settings for package chunk.
func (c Chunking) Settings() chunk.Settings {
	s := chunk.Settings{Strategy: chunk.Strategy(c.Strategy), Tokens: c.Tokens, Overlap: c.Overlap}
	if c.ByCharacters() {
		s.Characters, s.Separators, s.Between = c.Characters, c.Cuts(), c.Between
		if c.Strategy == ChunkWhole {
			s.Strategy = chunk.None
		}
	}
	return s
}

// Joined returns the separator whose repetitions count as one in the text of a chunk; "": none.
func (c Chunking) Joined() string {
	if c.Strategy != ChunkCharacter {
		return ""
	}
	return c.Cuts()[0]
}

// ChunkingMistake returns what is wrong with the chunking, or "".
func (s Spec) ChunkingMistake() string {
	if s.Chunking.On() && s.InSource() {
		return "chunks need an embedding table (into: {table: NAME}): a column of the row holds one vector"
	}
	return s.Chunking.mistake()
}

func (c Chunking) mistake() string {
	switch {
	case !c.On() && c != Chunking{}:
		return "chunking has settings and no strategy: " + strategies
	case !c.On():
		return ""
	case c.ByCharacters():
		return c.byCharactersMistake()
	case !slices.Contains([]string{ChunkTokens, ChunkSentences, ChunkMarkdown}, c.Strategy):
		return fmt.Sprintf("there is no chunking strategy %q: none, %s", c.Strategy, strategies)
	case c.Characters != 0 || c.Separators != "" || c.Between != "":
		return fmt.Sprintf("chunking: characters, separators and context_separator are for character and recursive, not for %s",
			c.Strategy)
	case c.Tokens < MinChunkTokens || c.Tokens > MaxChunkTokens:
		return fmt.Sprintf("chunks of %d tokens: from %d to %d are allowed", c.Tokens, MinChunkTokens, MaxChunkTokens)
	case c.Overlap < 0 || c.Overlap > c.Tokens/2:
		return fmt.Sprintf("an overlap of %d tokens: at most half of the %d of a chunk", c.Overlap, c.Tokens)
	}
	return ""
}

const strategies = "tokens, sentences, markdown, character, recursive or whole"

func (c Chunking) byCharactersMistake() string {
	switch {
	case c.Tokens != 0:
		return fmt.Sprintf("chunking: the size of %s chunks is in characters, not in tokens", c.Strategy)
	case c.Strategy == ChunkWhole && (c.Overlap != 0 || c.Separators != "" || c.Characters != 0):
		return "chunking: the strategy whole cuts nothing: it has no size, overlap and separators"
	case c.Between != "" && c.Context == "":
		return "chunking: context_separator needs a context"
	case c.Strategy == ChunkWhole:
		return ""
	case c.Characters < 1 || c.Characters > MaxChunkCharacters:
		return fmt.Sprintf("chunks of %d characters: from 1 to %d are allowed", c.Characters, MaxChunkCharacters)
	case c.Overlap < 0 || c.Overlap > c.Characters:
		return fmt.Sprintf("an overlap of %d characters: at most the %d of a chunk", c.Overlap, c.Characters)
	case c.Strategy == ChunkCharacter && len(c.Cuts()) != 1:
		return "chunking: the strategy character has one separator; recursive takes several"
	}
	return ""
}

// name is the strategy with its specific settings, in letters and digits.
func (c Chunking) name() string {
	if !c.ByCharacters() {
		return c.Strategy
	}
	const enough = 8
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q", c.Characters, c.Cuts(), c.Between))
	return c.Strategy + hex.EncodeToString(sum[:enough])
}

// ChunkedHash is the text hash in the ledger of a row with chunks: it covers everything that chunks are made of. Its
// version changes when the same settings begin to give other chunks.
func (c Chunking) ChunkedHash(text, context string) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "chunks 1 %s %d %d %t %d\n", c.name(), c.Tokens, c.Overlap, c.NoText, len(context))
	_, _ = h.Write([]byte(context))
	_, _ = h.Write([]byte(text))
	return [sha256.Size]byte(h.Sum(nil))
}

// ChunkedHashExpression returns the SQL of ChunkedHash for two text expressions.
func (c Chunking) ChunkedHashExpression(text, context string) string {
	context = "coalesce(" + context + ", '')"
	return fmt.Sprintf(`sha256(convert_to('chunks 1 %s %d %d %t ' || octet_length(convert_to(%s, pg_client_encoding()::name)) || E'\n' || %s || %s, pg_client_encoding()::name))`,
		c.name(), c.Tokens, c.Overlap, c.NoText, context, context, text)
}

// ContextExpression returns the SQL for the beginning of the context line of the row r; NULL without a context.
func (p *Pipeline) ContextExpression() string {
	if strings.TrimSpace(p.Chunking.Context) == "" {
		return "NULL::text"
	}
	return "(" + Enclose(p.Chunking.Context) + ")::text"
}
