package unigram

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/trie"
)

// file is the part of a tokenizer.json that matters here.
type file struct {
	AddedTokens  []added `json:"added_tokens"`
	Normalizer   *part   `json:"normalizer"`
	PreTokenizer *part   `json:"pre_tokenizer"`
	Model        struct {
		Type     string               `json:"type"`
		Unknown  *int                 `json:"unk_id"`
		Bytes    bool                 `json:"byte_fallback"`
		Vocab    [][2]json.RawMessage `json:"-"` // read once the type is known: other types write it in other ways
		Sequence json.RawMessage      `json:"vocab"`
	} `json:"model"`
}

type added struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LeftStrip  bool   `json:"lstrip"`
	RightStrip bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// part is a normalizer or a pre-tokenizer.
type part struct {
	Type        string `json:"type"`
	Normalizers []part `json:"normalizers"`
	Tokenizers  []part `json:"pretokenizers"`
	Table       string `json:"precompiled_charsmap"`
	Pattern     struct {
		String string `json:"String"`
		Regex  string `json:"Regex"`
	} `json:"pattern"`
	Content     string `json:"content"`
	Left        bool   `json:"strip_left"`
	Right       bool   `json:"strip_right"`
	Replacement string `json:"replacement"`
	Prepend     string `json:"prepend_scheme"`
	AddPrefix   *bool  `json:"add_prefix_space"` // as older files say it
	Split       *bool  `json:"split"`
}

// New makes a tokenizer of the content of a tokenizer.json. The error says what of it is not supported.
func New(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	switch {
	case f.Model.Type != "Unigram":
		return nil, fmt.Errorf("model type %q is not supported, only %q is", f.Model.Type, "Unigram")
	case f.Model.Bytes:
		return nil, errors.New("model: byte_fallback=true is not supported")
	}
	t := &Tokenizer{added: f.AddedTokens}
	if err := t.readVocab(&f); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	for _, a := range t.added {
		if a.Content == "" || a.ID < 0 || a.SingleWord || a.Normalized {
			return nil, fmt.Errorf("added_tokens: %q is empty or has single_word or normalized set: that is not supported",
				a.Content)
		}
		t.maxID = max(t.maxID, a.ID)
	}
	slices.SortStableFunc(t.added, func(a, b added) int { return len(b.Content) - len(a.Content) }) // the longest is found
	if f.Normalizer != nil {
		if err := t.addNormalizer(f.Normalizer); err != nil {
			return nil, fmt.Errorf("normalizer: %w", err)
		}
	}
	if f.PreTokenizer != nil {
		if err := t.addSplitter(f.PreTokenizer); err != nil {
			return nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
	}
	return t, nil
}

func (t *Tokenizer) readVocab(f *file) error {
	if err := json.Unmarshal(f.Model.Sequence, &f.Model.Vocab); err != nil {
		return fmt.Errorf("parse vocab: %w", err)
	}
	f.Model.Sequence = nil
	if f.Model.Unknown == nil || *f.Model.Unknown < 0 || *f.Model.Unknown >= len(f.Model.Vocab) {
		return errors.New("unk_id is none of the tokens")
	}
	t.unknown, t.maxID = int32(*f.Model.Unknown), int32(len(f.Model.Vocab)-1)
	size, least, tokens := 0, math.Inf(1), make([]string, len(f.Model.Vocab))
	t.scores = make([]float64, len(f.Model.Vocab))
	for i, pair := range f.Model.Vocab {
		if err := errors.Join(json.Unmarshal(pair[0], &tokens[i]), json.Unmarshal(pair[1], &t.scores[i])); err != nil {
			return fmt.Errorf("token %d: %w", i, err)
		}
		size, least = size+len(tokens[i]), min(least, t.scores[i])
	}
	const penalty = 10 // of what is unknown
	t.unknownScore = least - penalty
	var err error
	if t.vocab, err = trie.New(size); err != nil {
		return err
	}
	for i, token := range tokens {
		if token != "" {
			t.vocab.Add(trie.Begin, token, int32(i))
		}
	}
	return nil
}

func (t *Tokenizer) addNormalizer(p *part) error {
	switch {
	case p.Type == "Sequence":
		for i := range p.Normalizers {
			if err := t.addNormalizer(&p.Normalizers[i]); err != nil {
				return err
			}
		}
		return nil
	case p.Type == "Precompiled":
		data, err := base64.StdEncoding.DecodeString(p.Table)
		if err != nil {
			return fmt.Errorf("precompiled_charsmap: %w", err)
		}
		table, err := newTable(data)
		if err != nil {
			return fmt.Errorf("precompiled_charsmap: %w", err)
		}
		t.normalizers = append(t.normalizers, table.normalize)
	case p.Type == "Lowercase":
		t.normalizers = append(t.normalizers, lowercase)
	case p.Type == "Strip":
		t.normalizers = append(t.normalizers, func(in piece) piece { return in.strip(p.Left, p.Right) })
	case p.Type == "Replace" && p.Pattern.Regex == " {2,}":
		t.normalizers = append(t.normalizers, func(in piece) piece { return in.joinSpaces(p.Content) })
	case p.Type == "Replace" && p.Pattern.String != "":
		t.normalizers = append(t.normalizers, func(in piece) piece { return in.replace(p.Pattern.String, p.Content) })
	default:
		return fmt.Errorf("type %q is not supported, or not with this pattern", p.Type)
	}
	return nil
}

func (t *Tokenizer) addSplitter(p *part) error {
	switch p.Type {
	case "Sequence":
		for i := range p.Tokenizers {
			if err := t.addSplitter(&p.Tokenizers[i]); err != nil {
				return err
			}
		}
		return nil
	case "WhitespaceSplit":
		t.splitters = append(t.splitters, splitSpaces)
	case "Metaspace":
		if p.Replacement == "" {
			return errors.New("the replacement of Metaspace is empty")
		}
		m := metaspace{mark: p.Replacement, scheme: p.Prepend, split: p.Split == nil || *p.Split}
		if m.scheme == "" && (p.AddPrefix == nil || *p.AddPrefix) {
			m.scheme = prependAlways
		}
		t.splitters = append(t.splitters, m.apply)
	default:
		return fmt.Errorf("type %q is not supported", p.Type)
	}
	return nil
}
