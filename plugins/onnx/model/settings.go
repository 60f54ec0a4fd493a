package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// The files of a model folder.
const (
	graphFile     = "model.onnx"
	int8File      = "model_int8.onnx"
	tokenizerFile = "tokenizer.json" //nolint:gosec // the name of a file, not a secret
)

// Limits on files that are read into memory.
const (
	maxTokenizerBytes = 64 << 20
	maxGraphBytes     = 2 << 30 // the limit of the format
)

// MaxTokensLimit bounds the token limit that a model folder may set.
const MaxTokensLimit = 8192

// settings are the settings in a model folder's files, as written by sentence-transformers and transformers, with a
// user's overrides.
type settings struct {
	maxTokens    int
	positions    int // the model's limit of tokens; 0: not known
	vocab        int // 0: not known
	hidden       int // 0: not known
	truncateLeft bool
	pooling      string
	poolingSet   bool // set by the folder or the user, not a default
	normalize    bool
	dense        []*dense  // layers after the pooling
	layerNorm    *bool     // layer norm before truncation; nil: not set, so none
	wantsNorm    bool      // the model's card requires a layer norm, which no file states
	loggedTwice  bool      // poolSplade: log(1 + log(1 + x)) instead of log(1 + x)
	weights      []float32 // of a query's tokens, instead of the network; nil: queries go through the network
	weightsFile  string    // in the folder
	tasks        map[embed.Kind]int64
	tasked       bool // the graph has a task input
	heads        int  // of attention; 0: not known
	labels       int  // number of classes; 0: not known
	raw          bool // poolRerank: no sigmoid is applied to the graph's number
	tokenizer    tokenizerConfig
	keep         int               // dims to keep, or numbers of a sparse vector; 0: all
	prefixes     [2]string         // by embed.Kind
	from         map[string]string // source of each setting; defaults are missing
	unused       []string          // names of prompts that are not for queries or documents
	card         string            // settings by a well-known model's card that its files lack; "": none
}

func readSettings(f *folder.Folder, by Settings) (settings, error) {
	s := settings{from: map[string]string{}}
	for _, read := range []func(*folder.Folder) error{s.readLimits, s.readModules, s.readPrompts} {
		if err := read(f); err != nil {
			return settings{}, err
		}
	}
	if err := s.override(by); err != nil {
		return settings{}, err
	}
	return s, s.checkLimit()
}

// readLimits reads the model's token limit. It ignores the one in tokenizer.json, which is a leftover of the
// tokenizer's last use.
func (s *settings) readLimits(f *folder.Folder) error {
	var sentence struct {
		MaxTokens *int `json:"max_seq_length"`
		Lowercase bool `json:"do_lower_case"`
	}
	var tokenizer struct {
		tokenizerConfig

		MaxTokens float64 `json:"model_max_length"` // may be 1e30, for no limit
		Side      string  `json:"truncation_side"`
	}
	var config struct {
		Name      string   `json:"_name_or_path"`
		Type      string   `json:"model_type"`
		Positions int      `json:"max_position_embeddings"`
		Pad       *int     `json:"pad_token_id"`
		Vocab     int      `json:"vocab_size"`
		Hidden    int      `json:"hidden_size"`
		Dim       int      `json:"dim"` // what DistilBERT calls it
		Heads     int      `json:"num_attention_heads"`
		DistHeads int      `json:"n_heads"` // what DistilBERT calls them
		GPTHeads  int      `json:"n_head"`  // what nomic-embed-text calls them
		Tasks     []string `json:"lora_adaptations"`

		Labels     map[string]string `json:"id2label"`
		Activation string            `json:"sbert_ce_default_activation_function"`
		Sentence   struct {
			Activation string `json:"activation_fn"`
		} `json:"sentence_transformers"`
	}
	if _, err := f.ReadJSON("config.json", &config); err != nil {
		return err
	}
	sentenceFile := ""
	for _, kind := range sentenceConfigs {
		name := "sentence_" + kind + "_config.json"
		if found, err := f.ReadJSON(name, &sentence); err != nil {
			return err
		} else if found {
			sentenceFile = name
			break
		}
	}
	s.card = cardOf(config.Name, f.Path, config.Type)
	if found, err := f.ReadJSON("tokenizer_config.json", &tokenizer); err != nil {
		return err
	} else if found && tokenizer.Class == "" {
		tokenizer.Class = classes[config.Type]
	}
	if sentence.Lowercase {
		return errors.New(sentenceFile + ": do_lower_case=true is not supported: the tokenizer makes small letters itself")
	}
	s.tokenizer = tokenizer.tokenizerConfig
	s.heads, s.tasks = max(config.Heads, config.DistHeads, config.GPTHeads), tasksOf(config.Tasks)
	s.wantsNorm = config.Type == "nomic_bert"
	s.labels = len(config.Labels)
	if err := s.readActivation(cmp.Or(config.Sentence.Activation, config.Activation)); err != nil {
		return err
	}
	s.vocab, s.hidden, s.positions = config.Vocab, max(config.Hidden, config.Dim), config.Positions
	if slices.Contains(countsFromPad, config.Type) && s.positions > 0 {
		pad := 1
		if config.Pad != nil {
			pad = *config.Pad
		}
		s.positions -= pad + 1
	}
	s.limit(sentence.MaxTokens, sentenceFile, tokenizer.MaxTokens)
	switch tokenizer.Side {
	case "", right:
	case left:
		s.truncateLeft = true
	default:
		return fmt.Errorf("tokenizer_config.json: truncation_side %q is neither %s nor %s", tokenizer.Side, right, left)
	}
	return nil
}

// limit sets the token limit: that of sentence-transformers' file (nil: none), or the tokenizer's if plausible, or the
// number of positions.
func (s *settings) limit(sentence *int, file string, tokenizer float64) {
	switch {
	case sentence != nil:
		s.maxTokens, s.from[settingMaxTokens] = *sentence, file
	case tokenizer > 0 && (tokenizer <= float64(s.positions) || s.positions == 0 &&
		tokenizer <= MaxTokensLimit):
		s.maxTokens, s.from[settingMaxTokens] = int(tokenizer), "tokenizer_config.json"
	default:
		s.maxTokens, s.from[settingMaxTokens] = s.positions, "config.json"
	}
	if s.maxTokens > MaxTokensLimit {
		s.from[settingMaxTokens] += fmt.Sprintf(", which says %d: at most %d are read", s.maxTokens, MaxTokensLimit)
		s.maxTokens = MaxTokensLimit
	}
}

// sentenceConfigs are the model kinds for which sentence-transformers had limit files, in its order.
var sentenceConfigs = []string{"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}

// countsFromPad are the models whose first position is the one after the padding index, so that fewer tokens fit.
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
		return fmt.Errorf("a limit of %d tokens is not between 3 and %d; it comes from %s",
			s.maxTokens, most, cmp.Or(s.from[settingMaxTokens], "no file: set max_tokens"))
	}
	return nil
}

// readActivation reads the activation of a reranker's number, a torch class name. The default is that of
// sentence-transformers and TEI.
func (s *settings) readActivation(class string) error {
	switch class[strings.LastIndexByte(class, '.')+1:] {
	case "":
		return nil
	case "Sigmoid":
	case "Identity":
		s.raw = true
	default:
		return fmt.Errorf("config.json: activation %q is neither Sigmoid nor Identity", class)
	}
	s.from[settingScore] = "config.json"
	return nil
}
