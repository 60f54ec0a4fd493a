package wordpiece

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/trie"
)

// file is the relevant part of a tokenizer.json. It omits truncation and padding on purpose: they are leftovers of the
// file's last use, not the model's settings.
type file struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    *normalizer     `json:"normalizer"`
	PreTokenizer  *kind           `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Model         struct {
		Type      string           `json:"type"`
		Unknown   string           `json:"unk_token"`
		Prefix    string           `json:"continuing_subword_prefix"`
		WordChars int              `json:"max_input_chars_per_word"`
		Vocab     map[string]int64 `json:"-"` // read once the type is known: other types write it in other ways
		Written   json.RawMessage  `json:"vocab"`
	} `json:"model"`
}

type kind struct {
	Type string `json:"type"`
}

type normalizer struct {
	Type         string `json:"type"`
	CleanText    bool   `json:"clean_text"`
	Chinese      bool   `json:"handle_chinese_chars"`
	StripAccents *bool  `json:"strip_accents"` // nil: as Lowercase
	Lowercase    bool   `json:"lowercase"`
}

type addedToken struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Normalized bool   `json:"normalized"`
}

const (
	maxWordChars = 10_000 // a word is kept in memory up to here
	maxTokenID   = math.MaxInt32
)

// parse reads a tokenizer.json and refuses one that this package does not support exactly.
func parse(data []byte) (*file, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if f.Model.Type != "WordPiece" {
		return nil, unsupported("model", f.Model.Type, "WordPiece")
	}
	if f.Model.Written != nil {
		if err := json.Unmarshal(f.Model.Written, &f.Model.Vocab); err != nil {
			return nil, fmt.Errorf("parse vocabulary: %w", err)
		}
	}
	for _, check := range []func() error{f.checkNormalizer, f.checkPreTokenizer, f.checkModel, f.checkAddedTokens} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return &f, nil
}

func unsupported(part, got, want string) error {
	got = cmp.Or(got, "none")
	return fmt.Errorf("%s type %q is not supported, only %q is", part, got, want)
}

func (f *file) checkNormalizer() error {
	n := f.Normalizer
	switch {
	case n == nil:
		return unsupported("normalizer", "", "BertNormalizer")
	case n.Type != "BertNormalizer":
		return unsupported("normalizer", n.Type, "BertNormalizer")
	case !n.CleanText:
		return fmt.Errorf("normalizer: clean_text=false is not supported")
	case !n.Chinese:
		return fmt.Errorf("normalizer: handle_chinese_chars=false is not supported")
	case !n.Lowercase:
		return fmt.Errorf("normalizer: lowercase=false is not supported: only uncased models are")
	case n.StripAccents != nil && !*n.StripAccents:
		return fmt.Errorf("normalizer: strip_accents=false is not supported")
	}
	return nil
}

func (f *file) checkPreTokenizer() error {
	if f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer" {
		got := ""
		if f.PreTokenizer != nil {
			got = f.PreTokenizer.Type
		}
		return unsupported("pre_tokenizer", got, "BertPreTokenizer")
	}
	return nil
}

func (f *file) checkModel() error {
	m := &f.Model
	switch {
	case len(m.Vocab) == 0:
		return fmt.Errorf("model: vocab is empty")
	case m.Prefix == "":
		return fmt.Errorf("model: continuing_subword_prefix is empty")
	case m.WordChars < 1 || m.WordChars > maxWordChars:
		return fmt.Errorf("model: max_input_chars_per_word=%d is not between 1 and %d", m.WordChars, maxWordChars)
	}
	if _, ok := m.Vocab[m.Unknown]; !ok {
		return fmt.Errorf("model: unk_token %q is not in the vocabulary", m.Unknown)
	}
	for token, id := range m.Vocab {
		if token == "" || token == m.Prefix {
			return fmt.Errorf("model: token %d is empty", id)
		}
		if id < 0 || id > maxTokenID {
			return fmt.Errorf("model: id %d of a token is not between 0 and %d", id, maxTokenID)
		}
	}
	return nil
}

func (f *file) checkAddedTokens() error {
	for _, a := range f.AddedTokens {
		switch {
		case a.Content == "":
			return fmt.Errorf("added_tokens: token %d is empty", a.ID)
		case a.ID < 0 || a.ID > maxTokenID:
			return fmt.Errorf("added_tokens: id %d of %q is not between 0 and %d", a.ID, a.Content, maxTokenID)
		case a.SingleWord || a.Normalized: // lstrip and rstrip take white space, of which no token is made anyway
			return fmt.Errorf("added_tokens: %q has single_word or normalized set: that is not supported", a.Content)
		}
	}
	return nil
}

// id returns the id of a special token by its text; added tokens take precedence over the vocabulary.
func (f *file) id(token string) (int32, bool) {
	for _, a := range f.AddedTokens {
		if a.Content == token {
			return int32(a.ID), true
		}
	}
	id, ok := f.Model.Vocab[token]
	return int32(id), ok
}

// around returns the special tokens before and after every text.
func (f *file) around() (before, after []int32, err error) {
	var p struct {
		kind
		Single []struct {
			SpecialToken *struct {
				ID     string `json:"id"`
				TypeID int    `json:"type_id"`
			} `json:"SpecialToken"`
			Sequence *struct {
				ID     string `json:"id"`
				TypeID int    `json:"type_id"`
			} `json:"Sequence"`
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int64 `json:"ids"`
		} `json:"special_tokens"`
		CLS []any `json:"cls"`
		SEP []any `json:"sep"`
	}
	if len(f.PostProcessor) > 0 {
		if err := json.Unmarshal(f.PostProcessor, &p); err != nil {
			return nil, nil, fmt.Errorf("parse post_processor: %w", err)
		}
	}
	switch p.Type {
	case "": // there is none
		return nil, nil, nil
	case "TemplateProcessing":
		into, sequences := &before, 0
		for _, piece := range p.Single {
			switch {
			case piece.SpecialToken != nil && piece.SpecialToken.TypeID == 0:
				for _, id := range p.SpecialTokens[piece.SpecialToken.ID].IDs {
					if id < 0 || id > maxTokenID {
						return nil, nil, fmt.Errorf("post_processor: id %d of %q is not between 0 and %d", id, piece.SpecialToken.ID,
							maxTokenID)
					}
					*into = append(*into, int32(id))
				}
			case piece.Sequence != nil && piece.Sequence.TypeID == 0:
				into = &after
				sequences++
			default:
				return nil, nil, fmt.Errorf("post_processor: a template with token types other than 0 is not supported")
			}
		}
		if sequences != 1 {
			return nil, nil, fmt.Errorf("post_processor: the template holds the text %d times, not once", sequences)
		}
		return before, after, nil
	case "BertProcessing", "RobertaProcessing":
		var ids [2]int32
		for i, token := range [][]any{p.CLS, p.SEP} {
			if len(token) != 2 {
				return nil, nil, fmt.Errorf("post_processor: cls and sep must be pairs of text and id")
			}
			id, ok := token[1].(float64)
			if !ok || id < 0 || id > maxTokenID || id != math.Trunc(id) {
				return nil, nil, fmt.Errorf("post_processor: id %v is not between 0 and %d", token[1], maxTokenID)
			}
			ids[i] = int32(id)
		}
		return ids[:1], ids[1:], nil
	default:
		return nil, nil, unsupported("post_processor", p.Type, "TemplateProcessing")
	}
}

// build makes the trie and the list of special tokens.
func (f *file) build() (*Tokenizer, error) {
	t := &Tokenizer{wordChars: f.Model.WordChars}
	var err error
	if t.codes, err = loadCodes(); err != nil {
		return nil, err
	}
	if t.before, t.after, err = f.around(); err != nil {
		return nil, err
	}
	size := 0
	for token := range f.Model.Vocab {
		size += len(token)
	}
	if t.trie, err = trie.New(size); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	for token, id := range f.Model.Vocab {
		if inner, ok := strings.CutPrefix(token, f.Model.Prefix); ok {
			t.trie.Add(trie.Inner, inner, int32(id))
		} else {
			t.trie.Add(trie.Begin, token, int32(id))
		}
		t.maxID = max(t.maxID, int32(id))
	}
	t.unknown, _ = f.id(f.Model.Unknown)
	for _, a := range f.AddedTokens {
		t.special = append(t.special, special{a.Content, int32(a.ID)})
		t.specialFirst[a.Content[0]] = true
		t.maxID = max(t.maxID, int32(a.ID))
	}
	// Longest first, so that the first match is the longest.
	slices.SortStableFunc(t.special, func(a, b special) int { return len(b.text) - len(a.text) })
	for _, id := range slices.Concat(t.before, t.after) {
		t.maxID = max(t.maxID, id)
	}
	return t, nil
}
