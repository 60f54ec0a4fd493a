package models

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a model folder that this package knows by name.
const (
	graphFile     = "model.onnx"
	int8File      = "model_int8.onnx"
	weightsFile   = "model.safetensors"
	tokenizerFile = "tokenizer.json" //nolint:gosec // the name of a file, not a secret
	configFile    = "config.json"
)

// Info is what the small files of a model folder say.
type Info struct {
	Name      string   `json:"name"` // of the folder
	Path      string   `json:"path"`
	Type      string   `json:"type"`      // of the encoder, "bert"; "" when not known
	Tokenizer string   `json:"tokenizer"` // "WordPiece", "BPE", "Unigram"; "" when not known
	Dims      int      `json:"dims"`      // of the encoder; 0 when not known
	Bytes     int64    `json:"bytes"`     // of all files
	Files     []string `json:"files"`     // that SHA256SUMS lists, sorted
	SHA256    string   `json:"sha256"`    // of model.onnx, or of the table of a static model, as listed
	Int8      bool     `json:"int8"`      // has model_int8.onnx besides
	Problem   string   `json:"problem,omitempty"`
}

// List returns the model folders in some folders, by name; of two with the same name the first, which is the one that
// is found.
func List(folders []string) []Info {
	var found []Info
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			path := filepath.Join(folder, entry.Name())
			if info, err := os.Stat(path); err != nil || !info.IsDir() || strings.HasPrefix(entry.Name(), ".") {
				continue
			}
			if _, err := os.Stat(filepath.Join(path, graphFile)); err != nil && !isStatic(path) {
				continue
			}
			if !slices.ContainsFunc(found, func(other Info) bool { return other.Name == entry.Name() }) {
				found = append(found, Describe(path))
			}
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Describe reads a model folder. What is wrong with it stands in Problem; its files are not verified.
func Describe(path string) Info {
	info := Info{Name: filepath.Base(path), Path: path}
	sums, err := ReadSums(path)
	if err != nil {
		info.Problem = err.Error()
	}
	for name, sum := range sums {
		info.Files = append(info.Files, name)
		if stat, err := os.Stat(filepath.Join(path, filepath.FromSlash(name))); err == nil {
			info.Bytes += stat.Size()
		}
		switch name {
		case graphFile, tableOf(path):
			info.SHA256 = sum
		case int8File:
			info.Int8 = true
		}
	}
	slices.Sort(info.Files)
	config, tokenizerPath := readConfig(path), filepath.Join(path, tokenizerFile)
	info.Type, info.Dims = config.Type, max(config.Hidden, config.Dim, config.Static)
	if in, static := staticIn(path); static {
		tokenizerPath = filepath.Join(path, in, tokenizerFile)
		info.Type = cmp.Or(info.Type, "static")
	}
	var tokenizer struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if readJSON(tokenizerPath, &tokenizer) == nil {
		info.Tokenizer = tokenizer.Model.Type
	}
	return info
}

type encoderConfig struct {
	Type   string `json:"model_type"`
	Hidden int    `json:"hidden_size"`
	Dim    int    `json:"dim"`
	Static int    `json:"hidden_dim"` // what model2vec calls it
}

func readConfig(folder string) encoderConfig {
	var config encoderConfig
	_ = readJSON(filepath.Join(folder, configFile), &config) // what it does not say stays empty
	return config
}

const maxJSONBytes = 64 << 20

func readJSON(path string, v any) error {
	data, err := readLimited(path, maxJSONBytes)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
