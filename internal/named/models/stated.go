package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Files in which sentence-transformers keeps what a model goes by.
const (
	modulesFile = "modules.json"
	limitsFile  = "sentence_bert_config.json"
	promptsFile = "config_sentence_transformers.json"
)

// Stated is what the user says of a model whose files do not say it, or say otherwise. It is written into the new
// folder, in the form of sentence-transformers. The zero value changes nothing.
type Stated struct {
	Pooling        string // mean, cls, last, max, weightedmean or mean_sqrt_len
	MaxTokens      int
	DocumentPrefix *string
	QueryPrefix    *string
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
			made := []map[string]string{
				{"path": "", "type": "sentence_transformers.models.Transformer"},
				{"path": module, "type": "sentence_transformers.models.Pooling"},
			}
			if err := writeJSON(folder, modulesFile, made); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("%s: %w", modulesFile, err)
		case len(modules) < 2 || !strings.HasSuffix(modules[1].Type, ".Pooling") || !filepath.IsLocal(modules[1].Path):
			return fmt.Errorf("%s has no pooling that could be another", modulesFile)
		default:
			module = modules[1].Path
		}
		if err := writeJSON(folder, filepath.Join(module, configFile), map[string]any{"pooling_mode": mode}); err != nil {
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
