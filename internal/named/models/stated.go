package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
)

// Files in which sentence-transformers keeps what a model goes by.
const (
	modulesFile = "modules.json"
	limitsFile  = "sentence_bert_config.json"
	promptsFile = "config_sentence_transformers.json"
)

// splade is the pooling of sparse models.
const splade, spladeModules = "splade", "sentence_transformers.sparse_encoder.models."

// Stated is what the user says of a model whose files do not say it, or say otherwise. It is written into the new
// folder, in the form of sentence-transformers. The zero value changes nothing.
type Stated struct {
	Pooling        string // mean, cls, last, max, weightedmean, mean_sqrt_len, or splade for a sparse model
	MaxTokens      int
	DocumentPrefix *string
	QueryPrefix    *string
}

// usualMost is how many tokens of a text are read where a model could read more and nobody says: with more, one text
// takes gigabytes, and a long text is found better by its parts.
const usualMost = 2048

// limit sets the most tokens of a text for a model that could read very many, and says so.
func (o *ImportOptions) limit() {
	most, heads := longest(o.From)
	if o.MaxTokens != 0 || most <= usualMost {
		return
	}
	o.MaxTokens = usualMost
	words := ""
	if need := 8 * heads * most * most; need > 0 { // two matrices of 32-bit numbers at a time
		words = fmt.Sprintf(", which would take about %s of memory for one", humanize.IBytes(uint64(need)))
	}
	o.Say(fmt.Sprintf("the model could read texts of %s tokens%s: %s are read; --max-tokens sets another limit, and "+
		"chunking divides longer texts", humanize.Comma(int64(most)), words, humanize.Comma(usualMost)))
}

// longest returns how many tokens of a text a model was made for, and the heads of its attention; 0: not known.
func longest(folder string) (tokens, heads int) {
	var limits struct {
		MaxTokens int `json:"max_seq_length"`
	}
	var config struct {
		Positions int `json:"max_position_embeddings"`
		Heads     int `json:"num_attention_heads"`
		GPTHeads  int `json:"n_head"`
	}
	_ = readJSON(filepath.Join(folder, configFile), &config) // what it does not say is not known
	for _, name := range optional {
		if strings.HasPrefix(name, "sentence_") && limits.MaxTokens == 0 {
			_ = readJSON(filepath.Join(folder, name), &limits)
		}
	}
	const most = 1 << 20 // tokenizers say 1e30 for none
	return min(cmp.Or(limits.MaxTokens, config.Positions), most), min(max(config.Heads, config.GPTHeads), most)
}

func (s Stated) write(folder string) error {
	if s.Pooling != "" {
		mode, module := s.Pooling, "1_Pooling"
		if mode == "last" {
			mode = "lasttoken"
		}
		var modules []struct {
			Path string `json:"path"`
			Type string `json:"type"`
		}
		err := readJSON(filepath.Join(folder, modulesFile), &modules)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			encoder, kind := "sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"
			if s.Pooling == splade {
				encoder, kind = spladeModules+"MLMTransformer", spladeModules+"SpladePooling"
			}
			made := []map[string]string{{"path": "", "type": encoder}, {"path": module, "type": kind}}
			if err := writeJSON(folder, modulesFile, made); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("%s: %w", modulesFile, err)
		case s.Pooling == splade || len(modules) < 2 || !strings.HasSuffix(modules[1].Type, ".Pooling") ||
			!filepath.IsLocal(modules[1].Path):
			return fmt.Errorf("%s has no pooling that could be another", modulesFile)
		default:
			module = modules[1].Path
		}
		settings := map[string]any{"pooling_mode": mode}
		if s.Pooling == splade {
			settings = map[string]any{"pooling_strategy": "max", "activation_function": "relu"}
		}
		if err := writeJSON(folder, filepath.Join(module, configFile), settings); err != nil {
			return err
		}
	}
	if s.MaxTokens != 0 {
		if err := s.merge(folder, limitsFile, map[string]any{"max_seq_length": s.MaxTokens}); err != nil {
			return err
		}
	}
	if s.DocumentPrefix == nil && s.QueryPrefix == nil {
		return nil
	}
	var config struct {
		Prompts map[string]any `json:"prompts"`
	}
	if err := readJSON(filepath.Join(folder, promptsFile), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", promptsFile, err)
	}
	if config.Prompts == nil {
		config.Prompts = map[string]any{}
	}
	for name, prefix := range map[string]*string{"document": s.DocumentPrefix, "query": s.QueryPrefix} {
		if prefix != nil {
			config.Prompts[name] = *prefix
		}
	}
	return s.merge(folder, promptsFile, map[string]any{"prompts": config.Prompts})
}

// merge puts values into a file of settings, which it makes where there is none.
func (Stated) merge(folder, name string, values map[string]any) error {
	settings := map[string]any{}
	if err := readJSON(filepath.Join(folder, name), &settings); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, err)
	}
	maps.Copy(settings, values)
	return writeJSON(folder, name, settings)
}

func writeJSON(folder, name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, name)
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644) //nolint:gosec // anybody may read a model
}
