package embed

import (
	"context"
	"errors"
)

// Tokens are where the tokens of some texts end.
type Tokens struct {
	// Ends has, for each text, the offset in bytes after each of its tokens: not decreasing, none beyond the text.
	Ends [][]int
	// Around is how many tokens the model puts around every document by itself.
	Around int
}

// Tokenizer is what an Embedder implements that can tell how its model cuts texts into tokens.
type Tokenizer interface {
	// Tokenize returns where the tokens of texts end, whole texts, however long. Errors are those of Embed; ErrNoTokens is
	// among them when the embedder turns out to have no answer.
	Tokenize(ctx context.Context, texts []string) (Tokens, error)
}

// ErrNoTokens means that an embedder cannot say where tokens end.
var ErrNoTokens = errors.New("the embedder does not tell how its model cuts texts into tokens")
