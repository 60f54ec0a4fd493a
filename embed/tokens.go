package embed

import (
	"cmp"
	"context"
	"crypto/sha256"
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
	// Failed are the texts without an answer, though others had one. Only a Service tells them.
	Failed []FailedText
}

// FailedText is a text, by its index, for which an embedder has no answer.
type FailedText struct {
	At  int
	Err error
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

// cutting is the kind of texts whose tokens are asked for, in the doubts about them.
const cutting Kind = -1

// Tokenize returns the ends of the tokens of texts. Texts are sent in segments, cut at white space, so a token is never
// longer than a segment. With alone, no other call runs at the same time. If the embedder does not support it, the
// error is or wraps ErrNoTokens. An error of class Data is caused by these texts.
//
// Texts that were in several failed calls come last, one in each call, so that one without an answer does not fail the
// others: it is in Failed.
func (s *Service) Tokenize(ctx context.Context, texts []string, alone bool) (Tokens, error) {
	tokenizer, ok := s.embedder.(Tokenizer)
	if !ok {
		return Tokens{}, ErrNoTokens
	}
	d, err := s.Describe(ctx)
	if err != nil {
		return Tokens{}, err
	}
	c := &cut{by: tokenizer, most: segment, ends: make(map[string][]int, len(texts))}
	if d.MaxBatchBytes > 0 {
		c.most = max(min(segment, d.MaxBatchBytes), utf8.UTFMax)
	}
	batch := make([]*flight, 0, len(texts)) // each text once
	for _, text := range texts {
		if _, twice := c.ends[text]; text != "" && !twice {
			c.ends[text] = nil
			key := Key{Kind: cutting, Share: shareOf(ctx).Name, Hash: sha256.Sum256([]byte(text))}
			batch = append(batch, &flight{key: key, text: text})
		}
	}
	clean, doubted := s.doubts.split(batch)
	if len(clean) > 0 || len(doubted) == 0 {
		if err := s.cut(ctx, c, clean, alone); err != nil {
			return Tokens{}, err
		}
	}
	failed, err := s.cutDoubted(ctx, c, doubted, len(clean) > 0, alone)
	if err != nil {
		return Tokens{}, err
	}
	all := Tokens{Ends: make([][]int, len(texts)), Around: c.around}
	for i, text := range texts {
		all.Ends[i] = c.ends[text]
		if err := failed[text]; err != nil {
			all.Failed = append(all.Failed, FailedText{i, err})
		}
	}
	return all, nil
}

// cut is what a call of Tokenize has learned so far.
type cut struct {
	by     Tokenizer
	most   int // bytes in a segment
	ends   map[string][]int
	around int
}

// cut asks for the tokens of texts; with none, only for those around each.
func (s *Service) cut(ctx context.Context, c *cut, batch []*flight, alone bool) error {
	type place struct{ text, at int }
	var (
		pieces []string
		places []place
	)
	for i, f := range batch {
		for at := 0; at < len(f.text); {
			n := segmentOf(f.text[at:], c.most)
			pieces, places = append(pieces, f.text[at:at+n]), append(places, place{i, at})
			at += n
		}
	}
	if len(pieces) == 0 {
		pieces = []string{""}
	}
	leave, err := s.enter(ctx, alone)
	if err != nil {
		return err
	}
	defer leave()
	told, err := c.by.Tokenize(ctx, pieces)
	if errors.Is(err, ErrNoTokens) {
		return err
	}
	if err != nil {
		s.note(err) // only errors: success in Tokenize does not prove that it can embed
		if whole, _ := errors.AsType[*Error](err); whole.mayBeOfOne() {
			for _, f := range batch {
				s.doubts.failed(f.key)
			}
		}
		return err
	}
	c.around = told.Around
	ends := make([][]int, len(batch))
	for k, p := range places {
		for _, end := range told.Ends[k] {
			ends[p.text] = append(ends[p.text], p.at+end)
		}
	}
	for i, f := range batch {
		s.doubts.answered(f.key)
		c.ends[f.text] = ends[i]
	}
	return nil
}

// cutDoubted asks for the tokens of doubted texts one by one. It returns those that failed if others were answered, as
// answered says of those before them. After a few in a row, perhaps the embedder is down.
func (s *Service) cutDoubted(ctx context.Context, c *cut, doubted []*flight, answered, alone bool,
) (failed map[string]error, last error) {
	failed = map[string]error{}
	var whole *Error
	inARow := 0
	for i, f := range doubted {
		if inARow < mostInARow {
			err := s.cut(ctx, c, doubted[i:i+1], alone)
			if err == nil {
				answered, inARow = true, 0
				continue
			}
			if whole, _ = errors.AsType[*Error](err); !whole.mayBeOfOne() || ctx.Err() != nil {
				return nil, err
			}
			inARow++
		}
		failed[f.text] = whole.ofText("the embedder failed on this text alone, and answered others",
			cmp.Or(whole.RetryAfter, scarce)).Err
	}
	if len(failed) > 0 && !answered {
		return nil, whole
	}
	return failed, nil
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
