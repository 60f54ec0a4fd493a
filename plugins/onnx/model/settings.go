package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// The files of a model folder.
const (
	graphFile     = "model.onnx"
	int8File      = "model_int8.onnx"
	tokenizerFile = "tokenizer.json" //nolint:gosec // the name of a file, not a secret
)

// MaxTokensLimit bounds the token limit that a model folder may set.
const MaxTokensLimit = 8192

// settings is what the small files of a model folder say, as sentence-transformers and transformers write them, and
// what a user said otherwise.
type settings struct {
	maxTokens    int
	positions    int // most tokens that the model can take; 0: not known
	vocab        int // 0: not known
	hidden       int // 0: not known
	truncateLeft bool
	pooling      string
	poolingSet   bool // said by the folder or the user, and not a guess
	normalize    bool
	tokenizer    tokenizerConfig
	keep         int       // dims that are kept, or numbers of a sparse vector; 0: all
	prefixes     [2]string // by embed.Kind
}

// Ways to make one vector of the tokens' vectors.
const (
	poolMean  = "mean"
	poolFirst = "cls"
	poolLast  = "last"
	poolGraph = "graph" // the graph does it

	poolSplade = "splade" // a sparse vector of the words that the tokens stand for
)

func readSettings(f *folder, by Settings) (settings, error) {
	var s settings
	for _, read := range []func(*folder) error{s.readLimits, s.readModules, s.readPrompts} {
		if err := read(f); err != nil {
			return settings{}, err
		}
	}
	if err := s.override(by); err != nil {
		return settings{}, err
	}
	return s, s.checkLimit()
}

// readLimits finds the number of tokens that the model was made for. tokenizer.json has a number too, but that is a
// left-over of whoever used the tokenizer last.
func (s *settings) readLimits(f *folder) error {
	var sentence struct {
		MaxTokens *int `json:"max_seq_length"`
		Lowercase bool `json:"do_lower_case"`
	}
	var tokenizer struct {
		tokenizerConfig

		MaxTokens float64 `json:"model_max_length"` // may be 1e30, for none
		Side      string  `json:"truncation_side"`
	}
	var config struct {
		Type      string `json:"model_type"`
		Positions int    `json:"max_position_embeddings"`
		Pad       *int   `json:"pad_token_id"`
		Vocab     int    `json:"vocab_size"`
		Hidden    int    `json:"hidden_size"`
		Dim       int    `json:"dim"` // what DistilBERT calls it
	}
	for name, v := range map[string]any{"sentence_bert_config.json": &sentence, "config.json": &config} {
		if _, err := f.readJSON(name, v); err != nil {
			return err
		}
	}
	if found, err := f.readJSON("tokenizer_config.json", &tokenizer); err != nil {
		return err
	} else if found && tokenizer.Class == "" {
		tokenizer.Class = classes[config.Type]
	}
	if sentence.Lowercase {
		return errors.New("sentence_bert_config.json: do_lower_case=true is not supported: the tokenizer makes small letters itself")
	}
	s.tokenizer = tokenizer.tokenizerConfig
	s.vocab, s.hidden, s.positions = config.Vocab, max(config.Hidden, config.Dim), config.Positions
	if slices.Contains(countsFromPad, config.Type) && s.positions > 0 {
		pad := 1
		if config.Pad != nil {
			pad = *config.Pad
		}
		s.positions -= pad + 1
	}
	switch {
	case sentence.MaxTokens != nil:
		s.maxTokens = *sentence.MaxTokens
	case tokenizer.MaxTokens > 0 && (tokenizer.MaxTokens <= float64(s.positions) || s.positions == 0 &&
		tokenizer.MaxTokens <= MaxTokensLimit):
		s.maxTokens = int(tokenizer.MaxTokens)
	default:
		s.maxTokens = s.positions
	}
	switch tokenizer.Side {
	case "", right:
	case left:
		s.truncateLeft = true
	default:
		return fmt.Errorf("tokenizer_config.json: truncation_side %q is neither %s nor %s", tokenizer.Side, right, left)
	}
	return nil
}

// countsFromPad are the models whose first position is not 0 but the one behind the padding's: so many fewer tokens
// fit.
var countsFromPad = []string{
	"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "mpnet",
	"data2vec-text",
}

func (s *settings) checkLimit() error {
	most := MaxTokensLimit
	if s.positions > 0 {
		most = min(most, s.positions)
	}
	if s.maxTokens < 3 || s.maxTokens > most {
		return fmt.Errorf("a limit of %d tokens is not between 3 and %d; it comes from sentence_bert_config.json, tokenizer_config.json or config.json, unless max_tokens says otherwise",
			s.maxTokens, most)
	}
	return nil
}

// readModules finds what comes after the encoder.
func (s *settings) readModules(f *folder) error {
	var modules []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	found, err := f.readJSON("modules.json", &modules)
	if err != nil {
		return err
	}
	if !found { // a bare encoder: what sentence-transformers does with one
		s.pooling = poolMean
		return nil
	}
	var kinds []string
	for _, module := range modules {
		kinds = append(kinds, module.Type[strings.LastIndexByte(module.Type, '.')+1:])
	}
	if slices.Equal(kinds, []string{"MLMTransformer", "SpladePooling"}) {
		return s.readSplade(f, path.Join(modules[1].Path, "config.json"))
	}
	if !slices.Equal(kinds, []string{"Transformer", "Pooling"}) && !slices.Equal(kinds, []string{
		"Transformer", "Pooling",
		"Normalize",
	}) {
		return fmt.Errorf("modules.json: %s is not supported, only Transformer, Pooling and perhaps Normalize, or MLMTransformer and SpladePooling", strings.Join(kinds, ", "))
	}
	s.normalize = len(kinds) == 3
	return s.readPooling(f, path.Join(modules[1].Path, "config.json"))
}

// readPooling reads the settings of the pooling module, in the form with a switch for each way and in the one with a
// name.
func (s *settings) readPooling(f *folder, name string) error {
	pooling := map[string]json.RawMessage{}
	if found, err := f.readJSON(name, &pooling); err != nil || !found {
		return errors.Join(err, fmt.Errorf("read pooling settings %s", name))
	}
	var modes []string
	if raw, ok := pooling["pooling_mode"]; ok {
		var mode string
		if json.Unmarshal(raw, &mode) == nil {
			modes = []string{mode}
		} else if err := json.Unmarshal(raw, &modes); err != nil {
			return fmt.Errorf("%s: pooling_mode is neither a name nor a list of names", name)
		}
	} else {
		for key, value := range pooling {
			if mode, ok := strings.CutPrefix(key, "pooling_mode_"); ok && string(value) == "true" {
				modes = append(modes, mode)
			}
		}
	}
	slices.Sort(modes)
	switch strings.Join(modes, "+") {
	case "mean_tokens", "mean":
		s.pooling = poolMean
	case "cls_token", "cls":
		s.pooling = poolFirst
	case "lasttoken":
		s.pooling = poolLast
	default:
		return fmt.Errorf("%s: pooling %q is none of mean, cls and lasttoken", name, modes)
	}
	s.poolingSet = true
	if string(pooling["include_prompt"]) == "false" {
		return fmt.Errorf("%s: include_prompt=false is not supported", name)
	}
	return nil
}

// readPrompts finds what to put before a document and before a query.
func (s *settings) readPrompts(f *folder) error {
	var config struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	if _, err := f.readJSON("config_sentence_transformers.json", &config); err != nil {
		return err
	}
	fallback := ""
	if config.Default != nil {
		fallback = config.Prompts[*config.Default]
	}
	find := func(names ...string) string {
		for _, name := range names {
			if prompt, ok := config.Prompts[name]; ok {
				return prompt
			}
		}
		return fallback
	}
	s.prefixes[embed.Document] = find("document", "passage", "corpus")
	s.prefixes[embed.Query] = find("query")
	return nil
}
