package embed

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
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

// segment is the most bytes of a text that are sent to a Tokenizer as one.
const segment = 32 << 10

// Tokenize returns where the tokens of texts end. Texts of any size are sent in segments, cut at white space; so a
// token is never longer than a segment. With alone, nothing else is in the embedder meanwhile. When the embedder
// cannot tell, the error is, or wraps, ErrNoTokens; an error of class Data is about these texts.
func (s *Service) Tokenize(ctx context.Context, texts []string, alone bool) (Tokens, error) {
	tokenizer, ok := s.embedder.(Tokenizer)
	if !ok {
		return Tokens{}, ErrNoTokens
	}
	d, err := s.Describe(ctx)
	if err != nil {
		return Tokens{}, err
	}
	most := segment
	if d.MaxBatchBytes > 0 {
		most = max(min(most, d.MaxBatchBytes), utf8.UTFMax)
	}
	type place struct{ text, at int }
	var (
		pieces []string
		places []place
	)
	for i, text := range texts {
		for at := 0; at < len(text); {
			n := segmentOf(text[at:], most)
			pieces, places = append(pieces, text[at:at+n]), append(places, place{i, at})
			at += n
		}
	}
	if len(pieces) == 0 {
		pieces, places = []string{""}, []place{{-1, 0}} // for how many tokens are put around
	}
	leave, err := s.enter(ctx, alone)
	if err != nil {
		return Tokens{}, err
	}
	defer leave()
	told, err := tokenizer.Tokenize(ctx, pieces)
	if errors.Is(err, ErrNoTokens) {
		return Tokens{}, err
	}
	if err != nil {
		s.note(err) // only this: that it tells tokens does not prove that it can embed
		return Tokens{}, err
	}
	all := Tokens{Ends: make([][]int, len(texts)), Around: told.Around}
	for k, p := range places {
		if p.text < 0 {
			continue
		}
		for _, end := range told.Ends[k] {
			all.Ends[p.text] = append(all.Ends[p.text], p.at+end)
		}
	}
	return all, nil
}

// segmentOf returns the length of the first segment of a text that is not empty: up to white space, or else to a
// border of characters.
func segmentOf(text string, most int) int {
	if len(text) <= most {
		return len(text)
	}
	if i := strings.LastIndexFunc(text[:most], unicode.IsSpace); i > 0 {
		return i
	}
	for most > 1 && !utf8.RuneStart(text[most]) {
		most--
	}
	return most
}
