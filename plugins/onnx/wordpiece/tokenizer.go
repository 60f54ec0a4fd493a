// Package wordpiece tokenizes text for uncased BERT models, with the same ids as the reference library for every text.
// It reads the reference's tokenizer.json and refuses one that it does not support exactly.
//
// Its memory does not depend on the text: it keeps a word up to the model's longest, and tokens up to the limit.
package wordpiece

import (
	"strings"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/trie"
)

// A Tokenizer is safe for concurrent use.
type Tokenizer struct {
	codes         *codes
	trie          *trie.Trie
	before, after []int32 // the special tokens around every text
	unknown       int32   // for a word that cannot be composed of tokens
	wordChars     int     // longer words are unknown
	maxID         int32
	special       []special // matched in the raw text first; longest first
	specialFirst  [256]bool // bytes that one of them begins with
}

type special struct {
	text string
	id   int32
}

// Info is Encode's information about a text besides its tokens.
type Info struct {
	Content   int  // tokens from words; 0: only special tokens, so nothing to embed
	Truncated bool // there were more tokens than the limit
}

// New makes a tokenizer from the content of a tokenizer.json. The error names the unsupported setting.
func New(data []byte) (*Tokenizer, error) {
	f, err := parse(data)
	if err != nil {
		return nil, err
	}
	return f.build()
}

// MaxID returns the largest id that Encode can return; the model needs an embedding for it.
func (t *Tokenizer) MaxID() int32 { return t.maxID }

// Unknown returns the id of the unknown token.
func (t *Tokenizer) Unknown() int32 { return t.unknown }

// Around returns the number of special tokens around every text; a limit for Encode must be larger.
func (t *Tokenizer) Around() int { return len(t.before) + len(t.after) }

// Before returns how many of them are before the text.
func (t *Tokenizer) Before() int { return len(t.before) }

// Encode appends at most limit tokens of text to dst (0: no limit), including special tokens, and returns it. It cuts
// the end of the text, but not the special tokens after it. Bytes that are not UTF-8 are dropped.
func (t *Tokenizer) Encode(dst []int32, text string, limit int) ([]int32, Info) {
	e := encoder{Tokenizer: t, ids: append(dst, t.before...), end: int(^uint(0) >> 1)}
	if limit > 0 {
		e.end = len(dst) + max(limit-len(t.after), len(t.before))
	}
	e.text(text)
	if len(e.ids) > e.end {
		e.ids, e.info.Truncated = e.ids[:e.end], true
	}
	return append(e.ids, t.after...), e.info
}

// Ends returns the byte offset after each token of the text, without the special ones around it. A token that ends
// inside a character, which normalization has decomposed, counts as ending after it.
func (t *Tokenizer) Ends(text string) []int {
	e := encoder{Tokenizer: t, end: int(^uint(0) >> 1), ends: make([]int, 0, len(text)/4+1)}
	e.text(text)
	return e.ends
}

// An encoder is the state of one call of Encode.
type encoder struct {
	*Tokenizer
	ends  []int // nil: not wanted; where tokens end in the text
	at    int   // with ends: offset after the code point that is being read
	from  []int // with ends: for each byte of the word, the offset after the code point it comes from
	ids   []int32
	end   int // ids may exceed it by one word, and is then cut
	info  Info
	word  []byte // the word being read, normalized
	chars int    // of it; at most one more than wordChars
	space [256]byte
}

// text reads the text until its end or the limit.
func (e *encoder) text(text string) {
	e.word = e.space[:0]
	for i := 0; i < len(text) && len(e.ids) <= e.end; {
		b := text[i]
		if e.specialFirst[b] {
			if s, ok := e.specialAt(text[i:]); ok {
				e.flush()
				e.ids = append(e.ids, s.id)
				i += len(s.text)
				if e.ends != nil {
					e.ends = append(e.ends, i)
				}
				continue
			}
		}
		if b < utf8.RuneSelf {
			i++
			e.at = i
			e.rune(rune(b))
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		e.at = i
		e.rune(r)
	}
	if len(e.ids) <= e.end {
		e.flush()
	}
}

// specialAt returns the longest special token that is a prefix of text.
func (e *encoder) specialAt(text string) (special, bool) {
	for _, s := range e.special {
		if strings.HasPrefix(text, s.text) {
			return s, true
		}
	}
	return special{}, false
}

// rune reads one code point.
func (e *encoder) rune(r rune) {
	switch e.codes.class[r] {
	case letter:
		e.push(r)
	case removed:
	case space:
		e.flush()
	case punctuation, alone:
		e.single(r)
	case hangul:
		r -= syllableFirst
		e.push(leadFirst + r/(vowels*trails))
		e.push(vowelFirst + r/trails%vowels)
		if r%trails != 0 {
			e.push(trailFirst + r%trails)
		}
	case mapped:
		m := e.codes.mapped[r]
		if m.alone {
			e.flush()
		}
		for _, r := range m.to {
			switch e.codes.class[r] {
			case space:
				e.flush()
			case punctuation:
				e.single(r)
			default:
				e.push(r)
			}
		}
		if m.alone {
			e.flush()
		}
	}
}

// push appends a code point to the word.
func (e *encoder) push(r rune) {
	if e.chars > e.wordChars { // the word is unknown already, whatever follows
		if e.ends != nil {
			e.from[len(e.from)-1] = e.at
		}
		return
	}
	e.word = utf8.AppendRune(e.word, r)
	e.chars++
	for e.ends != nil && len(e.from) < len(e.word) {
		e.from = append(e.from, e.at)
	}
}

// single makes a word of one code point.
func (e *encoder) single(r rune) {
	e.flush()
	e.push(r)
	e.flush()
}

// flush ends the word and appends its tokens by greedy longest match, or the unknown token.
func (e *encoder) flush() {
	if e.chars == 0 {
		return
	}
	start, root := len(e.ids), trie.Begin
	for rest := e.word; len(rest) > 0; root = trie.Inner {
		id, length := e.trie.Longest(root, rest)
		if id == trie.None || e.chars > e.wordChars {
			e.ids = append(e.ids[:start], e.unknown)
			if e.ends != nil {
				e.ends = append(e.ends[:start], e.from[len(e.from)-1])
			}
			break
		}
		e.ids = append(e.ids, id)
		rest = rest[length:]
		if e.ends != nil {
			e.ends = append(e.ends, e.from[len(e.word)-len(rest)-1])
		}
	}
	e.from = e.from[:0]
	e.info.Content += len(e.ids) - start
	e.word, e.chars = e.word[:0], 0
}
