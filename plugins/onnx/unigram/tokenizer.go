// Package unigram tokenizes text for Unigram models, as trained by SentencePiece, with the same ids as the reference
// library. It reads the reference's tokenizer.json and refuses one that it does not support exactly.
package unigram

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/trie"
)

// A Tokenizer is safe for concurrent use.
type Tokenizer struct {
	added        []added // longest first
	normalizers  []func(piece) piece
	splitters    []func([]piece) []piece
	vocab        *trie.Trie
	scores       []float64
	unknown      int32
	unknownScore float64
	maxID        int32
}

// MaxID returns the largest id that Encode can give.
func (t *Tokenizer) MaxID() int32 { return t.maxID }

// Unknown returns the id of the unknown token.
func (t *Tokenizer) Unknown() int32 { return t.unknown }

// Encode appends at most limit tokens of a text to dst (0: all), without special ones around it. It returns how many
// came from the text's words, and whether the text was cut. Bytes that are not UTF-8 are dropped.
func (t *Tokenizer) Encode(dst []int32, text string, limit int) (ids []int32, content int, truncated bool) {
	e := encoder{Tokenizer: t, ids: dst}
	if limit > 0 {
		e.end = len(dst) + limit
	}
	e.text(strings.ToValidUTF8(text, ""), false)
	if e.end > 0 && len(e.ids) > e.end {
		return e.ids[:e.end], e.content, true
	}
	return e.ids, e.content, false
}

// Ends returns the byte offset after each token of a text in UTF-8.
func (t *Tokenizer) Ends(text string) []int {
	e := encoder{Tokenizer: t, ends: []int{}}
	e.text(text, true)
	for i := 1; i < len(e.ends); i++ {
		e.ends[i] = max(e.ends[i], e.ends[i-1])
	}
	return e.ends
}

type encoder struct {
	*Tokenizer
	ids     []int32
	ends    []int // nil: not wanted
	end     int   // of ids; 0: there is no limit
	content int
	best    []node
}

// text splits a text at its special tokens.
func (e *encoder) text(text string, ends bool) {
	begin := 0
	for at := 0; at < len(text) && !e.full(); {
		a := e.addedAt(text[at:])
		if a == nil {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
			continue
		}
		before, after := text[begin:at], at+len(a.Content)
		if a.LeftStrip {
			before = strings.TrimRightFunc(before, unicode.IsSpace)
		}
		if a.RightStrip {
			after = len(text) - len(strings.TrimLeftFunc(text[after:], unicode.IsSpace))
		}
		e.plain(before, begin, ends)
		e.ids, at, begin = append(e.ids, a.ID), after, after
		if ends {
			e.ends = append(e.ends, at)
		}
	}
	if !e.full() {
		e.plain(text[begin:], begin, ends)
	}
}

func (e *encoder) full() bool { return e.end > 0 && len(e.ids) > e.end }

func (e *encoder) addedAt(text string) *added {
	for i := range e.added {
		if strings.HasPrefix(text, e.added[i].Content) {
			return &e.added[i]
		}
	}
	return nil
}

// plain tokenizes a part between special tokens, which begins at offset in the text.
func (e *encoder) plain(text string, offset int, ends bool) {
	if text == "" {
		return
	}
	p := newPiece(text, offset, ends)
	for _, normalize := range e.normalizers {
		p = normalize(p)
	}
	words := []piece{p}
	for _, split := range e.splitters {
		words = split(words)
	}
	for _, word := range words {
		if e.full() {
			return
		}
		before := len(e.ids)
		e.word(word)
		e.content += len(e.ids) - before
	}
}

// A node is the best tokenization of the bytes before it.
type node struct {
	score  float64
	begin  int   // of its last token
	id     int32 // of that
	passed bool
}

// word appends the tokens with the largest sum of scores.
func (e *encoder) word(w piece) {
	if cap(e.best) <= len(w.text) {
		e.best = make([]node, 2*(len(w.text)+1))
	}
	best := e.best[:len(w.text)+1]
	clear(best)
	for at := 0; at < len(w.text); {
		_, size := utf8.DecodeRune(w.text[at:])
		single, here := false, best[at].score
		reach := func(id int32, length int, score float64) {
			if n := &best[at+length]; !n.passed || score > n.score {
				*n = node{score, at, id, true}
			}
		}
		e.vocab.Prefixes(trie.Begin, w.text[at:], func(id int32, length int) {
			reach(id, length, here+e.scores[id])
			single = single || length == size
		})
		if !single {
			reach(e.unknown, size, here+e.unknownScore)
		}
		at += size
	}
	first := len(e.ids)
	for at := len(w.text); at > 0; {
		n := best[at]
		if last := len(e.ids) - 1; n.id != e.unknown || last < first || e.ids[last] != e.unknown { // merge unknown tokens
			e.ids = append(e.ids, n.id)
			if w.ends != nil {
				e.ends = append(e.ends, w.ends[at-1])
			}
		}
		at = n.begin
	}
	slices.Reverse(e.ids[first:])
	if w.ends != nil {
		slices.Reverse(e.ends[len(e.ends)-(len(e.ids)-first):])
	}
}
