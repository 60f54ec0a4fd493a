package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// The files of a model folder that this package knows by name.
const (
	graphFile     = "model.onnx"
	int8File      = "model_int8.onnx"
	weightsFile   = "model.safetensors"
	tokenizerFile = "tokenizer.json" //nolint:gosec // the name of a file, not a secret
	configFile    = "config.json"
)

// Info is the information in the small files of a model folder.
type Info struct {
	Name      string   `json:"name"` // of the folder
	Path      string   `json:"path"`
	Type      string   `json:"type"`      // of the encoder, "bert"; "": unknown
	Tokenizer string   `json:"tokenizer"` // "WordPiece", "BPE", "Unigram"; "": unknown
	Dims      int      `json:"dims"`      // of the encoder; 0: unknown
	Bytes     int64    `json:"bytes"`     // of all files
	Files     []string `json:"files"`     // that SHA256SUMS lists, sorted
	SHA256    string   `json:"sha256"`    // of model.onnx, or of a static model's table, as listed
	Int8      bool     `json:"int8"`      // it also has model_int8.onnx
	Static    bool     `json:"static"`    // a table of vectors, for the plugin static
	Reranks   bool     `json:"reranks"`   // it scores texts for a query, and makes no vectors
	Problem   string   `json:"problem,omitempty"`
}

// List returns the model folders in some folders, by name. Of two with the same name it returns the first, which is the
// one that a name finds.
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

// Describe reads a model folder. Problem says what is wrong with it; its files are not verified.
func Describe(folder string) Info {
	info := Info{Name: filepath.Base(folder), Path: folder}
	sums, err := ReadSums(folder)
	if err != nil {
		info.Problem = err.Error()
	}
	for name, sum := range sums {
		info.Files = append(info.Files, name)
		if stat, err := os.Stat(filepath.Join(folder, filepath.FromSlash(name))); err == nil {
			info.Bytes += stat.Size()
		}
		switch name {
		case graphFile, tableOf(folder):
			info.SHA256 = sum
		case int8File:
			info.Int8 = true
		}
	}
	slices.Sort(info.Files)
	config, tokenizerPath := readConfig(folder), filepath.Join(folder, tokenizerFile)
	info.Type, info.Dims = config.Type, cmp.Or(max(config.Hidden, config.Dim), config.Static)
	info.Reranks = config.reranks()
	if in, static := staticIn(folder); static {
		tokenizerPath = filepath.Join(folder, in, tokenizerFile)
		info.Type, info.Static = cmp.Or(info.Type, "static"), true
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
	Static int    `json:"hidden_dim"` // in model2vec

	Architectures []string `json:"architectures"`

	Positions  string          `json:"position_embedding_type"`
	Act        string          `json:"hidden_act"`
	Activation string          `json:"activation"` // in DistilBERT
	Code       json.RawMessage `json:"auto_map"`   // custom code: its encoder differs from its type
}

// reranks reports whether the model is a reranker, or another classifier of texts, which no plugin supports.
func (c encoderConfig) reranks() bool {
	return slices.ContainsFunc(c.Architectures, func(name string) bool {
		return strings.HasSuffix(name, "ForSequenceClassification")
	})
}

// unmakeable returns the field of config.json because of which tools/make_onnx.py cannot make ONNX from the model's
// weights; "": it can.
func (c encoderConfig) unmakeable() string {
	switch kind := cmp.Or(c.Type, "bert"); {
	case !slices.Contains(MakeableTypes, kind):
		return fmt.Sprintf("model_type is '%s'", kind)
	case len(c.Code) > 0 && string(c.Code) != "null":
		return "auto_map names code of its own"
	case cmp.Or(c.Positions, "absolute") != "absolute":
		return fmt.Sprintf("position_embedding_type is '%s'", c.Positions)
	case cmp.Or(c.Act, c.Activation, "gelu") != "gelu":
		return fmt.Sprintf("its activation is '%s'", cmp.Or(c.Act, c.Activation))
	}
	return ""
}

// notMade returns why no ONNX can be made from the weights of a published model, and what to do; nil: it can.
func notMade(folder string) error {
	var task, why string
	config := readConfig(folder)
	modules, _ := readModules(folder) // errors are reported elsewhere
	switch {
	case config.reranks():
		why, task = configFile+": architectures names a reranker or a classifier", "--task text-classification "
	case config.unmakeable() != "":
		why = configFile + ": " + config.unmakeable()
		if sparse(modules) {
			task = "--task fill-mask "
		}
	default:
		return nil
	}
	return &UnfitError{fmt.Errorf("%s: no ONNX is made of its %s: %s", why, weightsFile, exportIt(task))}
}

// exportIt says how to export ONNX from any model. It needs PyTorch.
func exportIt(task string) string {
	return "export it (optimum-cli export onnx " + task + "--model FOLDER OUT) and import OUT, or take a model that has " +
		graphs[0]
}

// A module is an entry of modules.json.
type module struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// atTheTop refuses a model whose encoder is in a subfolder.
func atTheTop(modules []module) error {
	if len(modules) == 0 || path.Clean(modules[0].Path) == "." {
		return nil
	}
	return &UnfitError{fmt.Errorf("%s: its first module, %s, is in %q, and what is read is at the top of the folder: put "+
		"the files of that folder there, with the path \"\"; of a model for images and texts, take an ONNX file for texts "+
		"(--file)", modulesFile, modules[0].kind(), modules[0].Path)}
}

// An UnfitError means that a published model is of an unsupported kind: another download does not help.
type UnfitError struct{ err error }

func (e *UnfitError) Error() string { return e.err.Error() }
func (e *UnfitError) Unwrap() error { return e.err }

func (m module) kind() string { return m.Type[strings.LastIndexByte(m.Type, '.')+1:] }

// sparse reports whether the model makes sparse vectors from a masked language model's output.
func sparse(modules []module) bool {
	return slices.ContainsFunc(modules, func(m module) bool { return m.kind() == "SpladePooling" })
}

// readModules returns nil if the file does not exist. It replaces a router by its modules for documents and queries.
func readModules(folder string) (modules []module, err error) {
	if err = readJSON(filepath.Join(folder, modulesFile), &modules); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", modulesFile, err)
	}
	if len(modules) != 1 || modules[0].kind() != "Router" {
		return modules, nil
	}
	var router struct {
		Types     map[string]string   `json:"types"`
		Structure map[string][]string `json:"structure"`
	}
	if err := readJSON(filepath.Join(folder, routerFile), &router); err != nil {
		return nil, fmt.Errorf("%s: %w", routerFile, err)
	}
	modules = nil
	for _, path := range slices.Concat(router.Structure["document"], router.Structure["query"]) {
		modules = append(modules, module{path, router.Types[path]})
	}
	return modules, nil
}

func readConfig(folder string) encoderConfig {
	var config encoderConfig
	_ = readJSON(filepath.Join(folder, configFile), &config) // missing settings stay empty
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

// staticIn reports whether a folder is that of a static model, and which of its folders has the table and the
// tokenizer.
func staticIn(folder string) (in string, static bool) {
	m := manifest.ByContent(folder)
	if m == nil || !slices.Contains(m.Model.Encoders, staticModule) {
		return "", false
	}
	if modules, err := readModules(folder); err == nil && len(modules) > 0 &&
		strings.HasSuffix(modules[0].Type, staticModule) && filepath.IsLocal(modules[0].Path) {
		in = modules[0].Path
	}
	return path.Clean(in), true
}

const staticModule = "StaticEmbedding"

func isStatic(folder string) bool {
	_, static := staticIn(folder)
	return static
}

// tableOf returns the file with the vectors of a static model; "" for others.
func tableOf(folder string) string {
	if in, static := staticIn(folder); static {
		return path.Join(in, weightsFile)
	}
	return ""
}

// filesOf returns the files that a model in a folder must have.
func filesOf(folder string) []string {
	if in, static := staticIn(folder); static {
		return []string{path.Join(in, weightsFile), path.Join(in, tokenizerFile)}
	}
	return required
}

// Files with model settings of sentence-transformers.
const (
	modulesFile = "modules.json"
	routerFile  = "router_config.json"
	limitsFile  = "sentence_bert_config.json"
	promptsFile = "config_sentence_transformers.json"
)

// splade is the pooling of sparse models.
const splade, spladeModules = "splade", "sentence_transformers.sparse_encoder.models."

// Stated are settings that the user gives because the model's files lack them or are wrong. They are written to the new
// folder, in the form of sentence-transformers. The zero value changes nothing.
type Stated struct {
	Pooling        string // mean, cls, last, max, weightedmean, mean_sqrt_len, or splade for a sparse model
	MaxTokens      int
	DocumentPrefix *string
	QueryPrefix    *string
}

// usualMost is the default token limit of a text, for models with a higher one: with more, one text takes gigabytes,
// and a long text is found better by its chunks.
const usualMost = 2048

// limit sets the default token limit for a model with a higher one, and reports it.
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

// longest returns the token limit of a model, and the number of its attention heads; 0: unknown.
func longest(folder string) (tokens, heads int) {
	var limits struct {
		MaxTokens int `json:"max_seq_length"`
	}
	var config struct {
		Positions int `json:"max_position_embeddings"`
		Heads     int `json:"num_attention_heads"`
		GPTHeads  int `json:"n_head"`
	}
	_ = readJSON(filepath.Join(folder, configFile), &config) // missing settings are unknown
	for _, name := range optional {
		if strings.HasPrefix(name, "sentence_") && limits.MaxTokens == 0 {
			_ = readJSON(filepath.Join(folder, name), &limits)
		}
	}
	const most = 1 << 20 // tokenizers without a limit say 1e30
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

// merge adds values to a settings file, and creates it if missing.
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
	return os.WriteFile(path, append(data, '\n'), 0o644) //nolint:gosec // everyone may read a model
}
