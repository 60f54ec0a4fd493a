package embed

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokens are the ends of the tokens of some texts.
type Tokens struct {
	// Ends has, for each text, the offset in bytes after each of its tokens: not decreasing, none beyond the text.
	Ends [][]int
	// Around is how many tokens the model adds to every document: special ones, and those of a prefix.
	Around int
}

// Tokenizer is implemented by an Embedder that can report its model's tokens.
type Tokenizer interface {
	// Tokenize returns the ends of all tokens of texts of any length. Errors are those of Embed, or ErrNoTokens if the
	// embedder turns out not to support it.
	Tokenize(ctx context.Context, texts []string) (Tokens, error)
}

// ErrNoTokens means that an embedder cannot report its model's tokens.
var ErrNoTokens = errors.New("the embedder does not tell how its model cuts texts into tokens")

// segment is the largest part of a text sent to a Tokenizer, in bytes.
const segment = 32 << 10

// Tokenize returns the ends of the tokens of texts. Texts are sent in segments, cut at white space, so a token is never
// longer than a segment. With alone, no other call runs at the same time. If the embedder does not support it, the
// error is or wraps ErrNoTokens. An error of class Data is caused by these texts.
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
		pieces, places = []string{""}, []place{{-1, 0}} // an empty text, to get Around
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
		s.note(err) // only errors: success in Tokenize does not prove that it can embed
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

// segmentOf returns the length of the first segment of a non-empty text: up to white space, or else to a border of
// characters.
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
