package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/tokenizers"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

// A tokenizer returns the tokens of a text for the model: cut, with special tokens. It is safe for concurrent use.
type tokenizer interface {
	// encode appends a text's tokens to dst.
	encode(dst []int32, text string) ([]int32, encodedInfo, error)
	// ends returns the byte offset after each of a text's tokens, without added ones and without a limit.
	ends(text string) ([]int, error)
	// bare returns at most most tokens of a text, without added ones.
	bare(text string, most int) ([]int32, error)
	around() int // special tokens around every text
	maxID() int32
	typed() bool // some tokens have a type other than 0
}

// encodedInfo is encode's information about a text besides its tokens.
type encodedInfo struct {
	content   int // tokens that are not special; 0: nothing to embed
	truncated bool
}

// newTokenizer makes the tokenizer of a tokenizer.json: our own if it supports it exactly, or else the tokenizers
// crate.
func newTokenizer(data []byte, s *settings) (tokenizer, error) {
	own, err := wordpiece.New(data)
	if err == nil {
		return &wordPiece{own, s.maxTokens, s.truncateLeft}, nil
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("%s: it is no JSON, or a part of it: fetch it again", tokenizerFile)
	}
	linked, crateErr := tokenizers.New(data)
	if errors.Is(crateErr, tokenizers.ErrNotBuilt) {
		return nil, fmt.Errorf("read %s: %w; %w", tokenizerFile, err, crateErr)
	}
	if crateErr != nil {
		return nil, fmt.Errorf("read %s: %w", tokenizerFile, crateErr)
	}
	before, after := linked.Around()
	return &crate{linked, before, after, s.maxTokens, s.truncateLeft, splitsAtSpaces(data)}, nil
}

// added counts the added tokens of a tokenizer.json with ids from a number on.
func added(data []byte, from int) (count int) {
	var file struct {
		Added []struct {
			ID int `json:"id"`
		} `json:"added_tokens"`
	}
	if json.Unmarshal(data, &file) == nil {
		for _, token := range file.Added {
			if token.ID >= from {
				count++
			}
		}
	}
	return count
}

// wordPiece is the tokenizer of uncased BERT models.
type wordPiece struct {
	*wordpiece.Tokenizer
	limit int
	left  bool
}

func (w *wordPiece) around() int  { return w.Around() }
func (w *wordPiece) maxID() int32 { return w.MaxID() }
func (w *wordPiece) typed() bool  { return false }

func (w *wordPiece) ends(text string) ([]int, error) { return w.Ends(text), nil }

func (w *wordPiece) encode(dst []int32, text string) ([]int32, encodedInfo, error) {
	if !w.left {
		ids, info := w.Encode(dst, text, w.limit)
		return ids, encodedInfo{info.Content, info.Truncated}, nil
	}
	begin := len(dst)
	ids, info := w.Encode(dst, text, 0)
	over := len(ids) - begin - w.limit
	if over > 0 {
		first := begin + w.Before()
		ids = slices.Delete(ids, first, first+over)
	}
	return ids, encodedInfo{info.Content, over > 0}, nil
}

func (w *wordPiece) bare(text string, most int) ([]int32, error) {
	ids, _ := w.Encode(nil, text, most+w.Around())
	return ids[w.Before() : len(ids)-w.Around()+w.Before()], nil
}

// crate is every other tokenizer.
type crate struct {
	*tokenizers.Tokenizer
	before, after []int32
	limit         int
	left          bool
	local         bool // text after a space does not change the tokens before it
}

func (c *crate) around() int  { return len(c.before) + len(c.after) }
func (c *crate) maxID() int32 { return c.MaxID() }
func (c *crate) typed() bool  { return c.Typed() }

func (c *crate) ends(text string) ([]int, error) { return c.Ends(text) }

func (c *crate) encode(dst []int32, text string) ([]int32, encodedInfo, error) {
	room := c.limit - c.around()
	found, cut, err := c.beginning(text, room)
	if err != nil {
		return dst, encodedInfo{}, err
	}
	ids, truncated := found.IDs, cut || len(found.IDs) > room
	if len(ids) > room {
		if c.left {
			ids = ids[len(ids)-room:]
		} else {
			ids = ids[:room]
		}
	}
	dst = append(append(append(dst, c.before...), ids...), c.after...)
	return dst, encodedInfo{found.Content, truncated}, nil
}

func (c *crate) bare(text string, most int) ([]int32, error) {
	found, _, err := c.beginning(text, most)
	return found.IDs[:min(len(found.IDs), most)], err
}

// bytesPerToken is more than the length of most tokens.
const bytesPerToken = 16

// beginning tokenizes only as much of a text as its first tokens need, because the crate needs some hundred bytes of
// memory per word. It cuts at a space, and only for tokenizers that split at spaces.
func (c *crate) beginning(text string, tokens int) (found tokenizers.Encoded, cut bool, err error) {
	for size := bytesPerToken * (tokens + bytesPerToken); c.local && !c.left && size < len(text); size *= 4 {
		end := strings.LastIndexByte(text[:size], ' ')
		for end > 0 && isSpace(text[end-1]) {
			end--
		}
		if end <= 0 {
			continue
		}
		found, err := c.Encode(text[:end])
		if err != nil || len(found.IDs) > tokens && found.Content > 0 {
			return found, true, err
		}
	}
	found, err = c.Encode(text)
	return found, false, err
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// splitsAtSpaces reports whether a tokenizer.json splits texts at spaces before it finds tokens.
func splitsAtSpaces(data []byte) bool {
	var file struct {
		PreTokenizer *preTokenizer `json:"pre_tokenizer"`
	}
	return json.Unmarshal(data, &file) == nil && file.PreTokenizer.splitsAtSpaces()
}

type preTokenizer struct {
	Type     string         `json:"type"`
	Parts    []preTokenizer `json:"pretokenizers"`
	UseRegex *bool          `json:"use_regex"` // of ByteLevel
	Split    *bool          `json:"split"`     // of Metaspace
	Pattern  struct {
		Regex string `json:"Regex"`
	} `json:"pattern"`
}

func (p *preTokenizer) splitsAtSpaces() bool {
	if p == nil {
		return false
	}
	switch p.Type {
	case "Sequence":
		return slices.ContainsFunc(p.Parts, func(part preTokenizer) bool { return part.splitsAtSpaces() })
	case "WhitespaceSplit", "Whitespace", "BertPreTokenizer":
		return true
	case "ByteLevel":
		return p.UseRegex == nil || *p.UseRegex
	case "Metaspace":
		return p.Split == nil || *p.Split
	case "Split":
		return strings.Contains(p.Pattern.Regex, `\s`)
	}
	return false
}
