package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tokenizerConfig is the part of tokenizer_config.json that overrides tokenizer.json in transformers. The files may
// disagree, and a model's vectors were made with the combination.
type tokenizerConfig struct {
	Class        string          `json:"tokenizer_class"`
	Lowercase    *bool           `json:"do_lower_case"`
	StripAccents json.RawMessage `json:"strip_accents"` // null is explicit: as Lowercase
	Chinese      *bool           `json:"tokenize_chinese_chars"`
	PrefixSpace  *bool           `json:"add_prefix_space"`
	AddBegin     *bool           `json:"add_bos_token"`
	AddEnd       *bool           `json:"add_eos_token"`
	Begin        json.RawMessage `json:"bos_token"` // a string, or an object with it
	End          json.RawMessage `json:"eos_token"`

	changed string // the changes by apply, for the fingerprint
}

// generic are the classes that use tokenizer.json unchanged.
var generic = []string{"PreTrainedTokenizer", "TokenizersBackend", "ConvBertTokenizer"}

// berts are the classes whose defaults are: lower case, accents not specified, Chinese characters separated.
var berts = []string{
	"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer", "MobileBertTokenizer",
	"SqueezeBertTokenizer", "LayoutLMTokenizer", "SplinterTokenizer",
}

// robertas are the classes whose default is no space before a text.
var robertas = []string{"RobertaTokenizer", "GPT2Tokenizer", "BartTokenizer", "LongformerTokenizer"}

// classes are the default classes by model_type of config.json, if tokenizer_config.json names none.
var classes = map[string]string{
	"bert": "BertTokenizer", "distilbert": "BertTokenizer", "electra": "BertTokenizer", "mobilebert": "BertTokenizer",
	"squeezebert": "BertTokenizer",
	"convbert":    "BertTokenizer", "layoutlm": "BertTokenizer", "nomic_bert": "BertTokenizer", "ernie": "BertTokenizer",
	"megatron-bert": "BertTokenizer",
	"splinter":      "SplinterTokenizer", "mpnet": "MPNetTokenizer", "roberta": "RobertaTokenizer",
	"roberta-prelayernorm": "RobertaTokenizer",
	"data2vec-text":        "RobertaTokenizer", "longformer": "RobertaTokenizer", "modernbert": "TokenizersBackend",
}

// apply returns the tokenizer.json that combines both files. It is unchanged if they agree.
func (c *tokenizerConfig) apply(data []byte) ([]byte, error) {
	class, yes, no := strings.TrimSuffix(c.Class, "Fast"), true, false
	switch {
	case slices.Contains(generic, class):
		return data, nil
	case slices.Contains(berts, class):
		c.Lowercase, c.Chinese = cmp.Or(c.Lowercase, &yes), cmp.Or(c.Chinese, &yes)
		if c.StripAccents == nil {
			c.StripAccents = json.RawMessage("null")
		}
	case slices.Contains(robertas, class):
		c.PrefixSpace = cmp.Or(c.PrefixSpace, &no)
	}
	var file map[string]json.RawMessage
	if json.Unmarshal(data, &file) != nil {
		return data, nil // the full parser reports the error
	}
	for part, wants := range map[string]map[string]json.RawMessage{
		"normalizer": {
			"lowercase": truth(c.Lowercase), "strip_accents": c.StripAccents,
			"handle_chinese_chars": truth(c.Chinese),
		},
		"pre_tokenizer": {"add_prefix_space": truth(c.PrefixSpace)},
	} {
		if changed := override(file[part], wants); changed != nil {
			file[part] = changed
			c.changed += part + "=" + string(changed) + "\n"
		}
	}
	if c.changed == "" {
		return data, nil
	}
	lines := strings.SplitAfter(c.changed, "\n")
	slices.Sort(lines)
	c.changed = strings.Join(lines, "")
	return json.Marshal(file)
}

// truth is a setting as JSON; nil if not set.
func truth(b *bool) json.RawMessage {
	if b == nil {
		return nil
	}
	return json.RawMessage(fmt.Sprint(*b))
}

// overridden are the parts of a tokenizer that can be overridden.
var overridden = []string{"BertNormalizer", "ByteLevel"}

// override returns a part with other settings, or nil if nothing changes.
func override(part json.RawMessage, wants map[string]json.RawMessage) json.RawMessage {
	var kind struct {
		Type string `json:"type"`
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(part, &kind) != nil || !slices.Contains(overridden, kind.Type) || json.Unmarshal(part, &all) != nil {
		return nil
	}
	before := effective(all)
	for key, want := range wants {
		if _, ok := all[key]; ok && want != nil {
			all[key] = want
		}
	}
	if effective(all) == before {
		return nil
	}
	changed, err := json.Marshal(all)
	if err != nil {
		return nil // impossible: it was JSON before
	}
	return changed
}

// effective returns the effective settings: accents are stripped with lower case, unless specified.
func effective(all map[string]json.RawMessage) string {
	strip := string(all["strip_accents"])
	if strip == "null" || strip == "" {
		strip = string(all["lowercase"])
	}
	return strings.Join([]string{
		string(all["lowercase"]), strip, string(all["handle_chinese_chars"]),
		string(all["add_prefix_space"]),
	}, " ")
}

// addsEnds are the classes that add tokens before and after a text by tokenizer_config.json, not by tokenizer.json.
var addsEnds = []string{"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"}

// checkEnds refuses a tokenizer.json that adds other tokens around a text than tokenizer_config.json: the last token's
// vector would be wrong. ids are the tokens of any text.
func (c *tokenizerConfig) checkEnds(ids []int32, data []byte) error {
	if len(ids) == 0 {
		return nil
	}
	for _, end := range []struct {
		name  string
		add   *bool
		token json.RawMessage
		id    int32
	}{{"bos", c.AddBegin, c.Begin, ids[0]}, {"eos", c.AddEnd, c.End, ids[len(ids)-1]}} {
		var object struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(end.token, &object.Content) != nil && json.Unmarshal(end.token, &object) != nil {
			continue // not stated
		}
		id, known := idOf(data, object.Content)
		follows := slices.Contains(addsEnds, strings.TrimSuffix(c.Class, "Fast"))
		if end.add == nil || !known || *end.add == (id == end.id) || !*end.add && !follows {
			continue
		}
		return fmt.Errorf("tokenizer_config.json: add_%s_token is %t, and tokenizer.json does otherwise with %s: save both "+
			"again, as the model's card loads the tokenizer (save_pretrained)", end.name, *end.add, object.Content)
	}
	return nil
}

// idOf returns the number of a token of a tokenizer.json.
func idOf(data []byte, token string) (id int32, known bool) {
	var file struct {
		Added []struct {
			ID      int32  `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Model struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if json.Unmarshal(data, &file) != nil {
		return 0, false
	}
	for _, added := range file.Added {
		if added.Content == token {
			return added.ID, true
		}
	}
	var words map[string]int32
	_ = json.Unmarshal(file.Model.Vocab, &words) // in some files a list, whose special tokens are added tokens
	id, known = words[token]
	return id, known
}
