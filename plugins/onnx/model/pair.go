package model

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A reranker (cross-encoder) reads a query and a text together, and its graph returns one number for the pair.

// second marks a token of type 1, such as the tokens of a pair's text in BERT. It is far above every vocabulary size.
const second = 1 << 30

// longestFirst returns how many tokens of query and text fit into room, like the reference: it shortens the longer one
// until both have the same length, and then both.
func longestFirst(query, text, room int) (ofQuery, ofText int) {
	if query+text <= room {
		return query, text
	}
	shorter := min(query, text)
	longer := max(shorter, room-shorter)
	if shorter+longer > room {
		shorter = room / 2
		longer = room - shorter
	}
	if query > text {
		return longer, shorter
	}
	return shorter, longer
}

// pair describes how to combine the tokens of a query and a text.
type pair struct {
	parts  []pairPart
	around int // special tokens
}

type pairPart struct {
	special []int32 // nil: the query, or the text
	text    bool
	mark    int32 // second, or 0
}

// append adds the tokens of a pair.
func (p *pair) append(dst, query, text []int32) []int32 {
	for _, part := range p.parts {
		tokens := part.special
		switch {
		case tokens != nil:
		case part.text:
			tokens = text
		default:
			tokens = query
		}
		for _, token := range tokens {
			dst = append(dst, token|part.mark)
		}
	}
	return dst
}

// postProcessor is the part of a tokenizer.json that combines texts.
type postProcessor struct {
	Type       string          `json:"type"`
	Processors []postProcessor `json:"processors"`
	Separator  specialToken    `json:"sep"`
	Class      specialToken    `json:"cls"`
	Pair       []struct {
		Special  *pairPiece `json:"SpecialToken"`
		Sequence *pairPiece `json:"Sequence"`
	} `json:"pair"`
	Tokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

type pairPiece struct {
	ID   string `json:"id"`
	Type int32  `json:"type_id"`
}

// specialToken is written as ["[SEP]", 102].
type specialToken int32

// UnmarshalJSON implements json.Unmarshaler.
func (t *specialToken) UnmarshalJSON(data []byte) error {
	var name string
	var id int32
	err := json.Unmarshal(data, &[]any{&name, &id})
	*t = specialToken(id)
	return err
}

// readPair reads from a tokenizer.json how to combine a pair.
func readPair(data []byte, limit int) (pair, error) {
	var file struct {
		Post *postProcessor `json:"post_processor"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return pair{}, fmt.Errorf("parse post_processor: %w", err)
	}
	p := pair{}
	if file.Post != nil {
		if err := p.read(file.Post); err != nil {
			return pair{}, err
		}
	}
	if len(p.parts) == 0 {
		return pair{}, errors.New("post_processor does not say how a pair of texts is put together, which a reranker reads")
	}
	const least = 2 // one token of each
	if p.around+least > limit {
		return pair{}, fmt.Errorf("a limit of %d tokens leaves no room for a query and a text", limit)
	}
	return p, nil
}

func (p *pair) read(by *postProcessor) error {
	add := func(mark int32, special ...int32) {
		p.parts = append(p.parts, pairPart{special: special, mark: mark})
		p.around += len(special)
	}
	cls, sep := int32(by.Class), int32(by.Separator)
	switch by.Type {
	case "BertProcessing":
		add(0, cls)
		p.parts = append(p.parts, pairPart{})
		add(0, sep)
		p.parts = append(p.parts, pairPart{text: true, mark: second})
		add(second, sep)
	case "RobertaProcessing":
		add(0, cls)
		p.parts = append(p.parts, pairPart{})
		add(0, sep, sep)
		p.parts = append(p.parts, pairPart{text: true})
		add(0, sep)
	case "TemplateProcessing":
		return p.readTemplate(by)
	case "Sequence":
		for i := range by.Processors {
			if err := p.read(&by.Processors[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTemplate reads a list of pieces.
func (p *pair) readTemplate(by *postProcessor) error {
	query, text := 0, 0
	for _, piece := range by.Pair {
		part, about := pairPart{}, piece.Sequence
		switch {
		case piece.Special != nil:
			about = piece.Special
			part.special = by.Tokens[about.ID].IDs
			if len(part.special) == 0 {
				return fmt.Errorf("post_processor: special token %q has no ids", about.ID)
			}
			p.around += len(part.special)
		case about == nil:
			return errors.New("post_processor: a piece of a pair is neither a special token nor a sequence")
		case about.ID == "A":
			query++
		default:
			part.text = true
			text++
		}
		switch about.Type {
		case 0:
		case 1:
			part.mark = second
		default:
			return fmt.Errorf("post_processor: tokens of type %d are not supported", about.Type)
		}
		p.parts = append(p.parts, part)
	}
	if len(by.Pair) > 0 && (query != 1 || text != 1) {
		return errors.New("post_processor: a pair has not each of its texts once")
	}
	return nil
}
