package model

import (
	"crypto/sha256"
	"encoding/hex"
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
	tokenizerFile = "tokenizer.json" //nolint:gosec // the name of a file, not a secret
)

// settings is what the small files of a model folder say, as sentence-transformers writes them.
type settings struct {
	maxTokens int
	vocab     int // 0: not known
	hidden    int // 0: not known
	pooling   string
	normalize bool
	prefixes  [2]string // by embed.Kind
}

// Ways to make one vector of the tokens' vectors.
const (
	poolMean  = "mean"
	poolFirst = "cls"
	poolGraph = "graph" // the graph does it
)

func readSettings(f *folder) (settings, error) {
	var s settings
	for _, read := range []func(*folder) error{s.readLimits, s.readModules, s.readPrompts} {
		if err := read(f); err != nil {
			return settings{}, err
		}
	}
	return s, nil
}

// readLimits finds the number of tokens that the model was made for. tokenizer.json has a number too, but that is a left-over
// of whoever used the tokenizer last.
func (s *settings) readLimits(f *folder) error {
	var sentence struct {
		MaxTokens *int `json:"max_seq_length"`
		Lowercase bool `json:"do_lower_case"`
	}
	var tokenizer struct {
		MaxTokens float64 `json:"model_max_length"` // may be 1e30, for none
	}
	var config struct {
		Positions int `json:"max_position_embeddings"`
		Vocab     int `json:"vocab_size"`
		Hidden    int `json:"hidden_size"`
	}
	for name, v := range map[string]any{
		"sentence_bert_config.json": &sentence, "tokenizer_config.json": &tokenizer, "config.json": &config,
	} {
		if _, err := f.readJSON(name, v); err != nil {
			return err
		}
	}
	if sentence.Lowercase {
		return errors.New("sentence_bert_config.json: do_lower_case=true is not supported: the tokenizer makes small letters itself")
	}
	s.vocab, s.hidden = config.Vocab, config.Hidden
	switch {
	case sentence.MaxTokens != nil:
		s.maxTokens = *sentence.MaxTokens
	case tokenizer.MaxTokens > 0 && tokenizer.MaxTokens <= float64(config.Positions):
		s.maxTokens = int(tokenizer.MaxTokens)
	default:
		s.maxTokens = config.Positions
	}
	if s.maxTokens < 3 || s.maxTokens > MaxTokensLimit || (config.Positions > 0 && s.maxTokens > config.Positions) {
		return fmt.Errorf("sentence_bert_config.json, config.json: a limit of %d tokens is not between 3 and %d",
			s.maxTokens, min(MaxTokensLimit, max(config.Positions, 3)))
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
	if !slices.Equal(kinds, []string{"Transformer", "Pooling"}) && !slices.Equal(kinds, []string{"Transformer", "Pooling", "Normalize"}) {
		return fmt.Errorf("modules.json: %s is not supported, only Transformer, Pooling and perhaps Normalize", strings.Join(kinds, ", "))
	}
	s.normalize = len(kinds) == 3

	pooling := map[string]any{}
	name := path.Join(modules[1].Path, "config.json")
	if found, err := f.readJSON(name, &pooling); err != nil || !found {
		return errors.Join(err, fmt.Errorf("read pooling settings %s", name))
	}
	var modes []string
	for key, value := range pooling {
		if mode, ok := strings.CutPrefix(key, "pooling_mode_"); ok && value == true {
			modes = append(modes, mode)
		}
	}
	slices.Sort(modes)
	switch strings.Join(modes, "+") {
	case "mean_tokens":
		s.pooling = poolMean
	case "cls_token":
		s.pooling = poolFirst
	default:
		return fmt.Errorf("%s: pooling %q is neither mean_tokens nor cls_token", name, modes)
	}
	if pooling["include_prompt"] == false {
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

// fingerprint names everything that can change a vector by more than rounding.
func fingerprint(f *folder, g *graph, s settings, dims int) string {
	hash := sha256.New()
	line := func(key string, value any) { _, _ = fmt.Fprintf(hash, "%s=%q\n", key, fmt.Sprint(value)) }
	line("format", "embedsidecar onnx 1")
	line("weights", f.sums[graphFile])
	external := slices.Clone(g.external)
	slices.Sort(external)
	for _, name := range slices.Compact(external) {
		line("weights "+name, f.sums[path.Clean(name)])
	}
	line("tokenizer", f.sums[tokenizerFile])
	line("pooling", s.pooling)
	line("normalize", s.normalize)
	line("document prefix", s.prefixes[embed.Document])
	line("query prefix", s.prefixes[embed.Query])
	line("max tokens", s.maxTokens)
	line("dims", dims)
	line("precision", g.precision)
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}
