package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/safetensors"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/unigram"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

const (
	tableFile     = "model.safetensors"
	tokenizerFile = "tokenizer.json" //nolint:gosec // the name of a file, not a secret
	modulesFile   = "modules.json"
	configFile    = "config.json"
	limitsFile    = "sentence_bert_config.json"

	maxTokenizerBytes = 64 << 20
	usualMaxTokens    = 512 // model2vec's default
	fromUser          = "the configuration"
)

// options are a user's settings, which override those of the folder. Zero values override nothing.
type options struct {
	folder, weights string
	dims, maxTokens int
	normalize       *bool
	prefixes        map[embed.Kind]string
}

// A model is a table of token vectors with its tokenizer. It is safe for concurrent use.
type model struct {
	name, fingerprint string
	tokenizer         tokenizer
	table             []float32
	width             int       // of the table
	weights           []float32 // by token; nil: all are 1
	rows              []int64   // row of the table by token; nil: the token itself
	dims              int       // that are kept
	maxTokens         int       // 0: no limit
	normalize         bool
	leaves            bool // unknown tokens are left out
	prefixes          map[embed.Kind]string
	settings          []embed.Setting
}

// tokenizer splits texts into tokens, without special ones.
type tokenizer interface {
	encode(dst []int32, text string, limit int) (ids []int32, content int, truncated bool)
	Ends(text string) []int
	MaxID() int32
	Unknown() int32
}

type wordPiece struct{ *wordpiece.Tokenizer }

func (w wordPiece) encode(dst []int32, text string, limit int) ([]int32, int, bool) {
	if limit > 0 {
		limit += w.Around()
	}
	first := len(dst)
	ids, info := w.Encode(dst, text, limit)
	last := len(ids) - (w.Around() - w.Before())
	return append(ids[:first], ids[first+w.Before():last]...), info.Content, info.Truncated
}

type pieces struct{ *unigram.Tokenizer }

func (p pieces) encode(dst []int32, text string, limit int) ([]int32, int, bool) {
	return p.Encode(dst, text, limit)
}

func newTokenizer(data []byte) (tokenizer, error) {
	var file struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	switch file.Model.Type {
	case "WordPiece":
		t, err := wordpiece.New(data)
		return wordPiece{t}, err
	case "Unigram":
		t, err := unigram.New(data)
		return pieces{t}, err
	}
	return nil, fmt.Errorf("model type %q is not supported, only WordPiece and Unigram are", file.Model.Type)
}

// openModel loads a model. It returns an error if a file does not match SHA256SUMS or is not a valid model.
func openModel(o options) (*model, error) {
	f, err := folder.Open(o.folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &model{name: filepath.Base(f.Path)}
	err = m.open(f, o)
	return m, wrap.Errorf(err, "open model %s", f.Path)
}

func (m *model) open(f *folder.Folder, o options) error {
	in, err := m.readSettings(f, o)
	if err != nil {
		return err
	}
	tokens, table := path.Join(in, tokenizerFile), path.Join(in, tableFile)
	data, err := f.Read(tokens, maxTokenizerBytes)
	if err != nil {
		return err
	}
	if m.tokenizer, err = newTokenizer(data); err != nil {
		return fmt.Errorf("%s: %w", tokens, err)
	}
	if o.weights != "" && !strings.EqualFold(o.weights, f.Sums[table]) {
		return fmt.Errorf("%s has sha256 %s, and is to have %s", table, f.Sums[table], o.weights)
	}
	if err := f.Stream(table, m.readTable); err != nil {
		return err
	}
	m.dims = m.width
	if o.dims > m.width {
		return fmt.Errorf("%s has %d dims, and %d are to be kept", table, m.width, o.dims)
	} else if o.dims > 0 {
		m.dims = o.dims
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "embedsidecar static 1\n%s\n%s\n%d %d %t %t\n%q %q\n", f.Sums[table], f.Sums[tokens], m.dims,
		m.maxTokens, m.normalize, m.leaves, m.prefixes[embed.Document], m.prefixes[embed.Query])
	m.fingerprint = "sha256:" + hex.EncodeToString(hash.Sum(nil))
	return f.VerifyRest(tokens, table)
}

// readSettings reads the settings and returns the folder of table and tokenizer.
func (m *model) readSettings(f *folder.Folder, o options) (in string, err error) {
	var config struct {
		Type      string          `json:"model_type"`
		Normalize *bool           `json:"normalize"`
		MaxTokens json.RawMessage `json:"max_length"`
	}
	var modules []struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	if _, err := f.ReadJSON(configFile, &config); err != nil {
		return "", err
	}
	if _, err := f.ReadJSON(modulesFile, &modules); err != nil {
		return "", err
	}
	for i, module := range modules {
		switch kind := module.Type[strings.LastIndexByte(module.Type, '.')+1:]; {
		case i == 0 && kind == "StaticEmbedding":
			in = path.Clean(module.Path)
		case i == 1 && kind == "Normalize":
			m.normalize = true
		default:
			return "", fmt.Errorf("%s: module %d is %s: only StaticEmbedding, perhaps with Normalize, is a static model",
				modulesFile, i, kind)
		}
	}
	from := modulesFile
	if m.leaves = config.Type == "model2vec" || config.Normalize != nil; m.leaves {
		from = configFile
		m.normalize = config.Normalize != nil && *config.Normalize
		m.maxTokens = usualMaxTokens
		if len(config.MaxTokens) > 0 {
			m.maxTokens = 0 // null is no limit
			if err := json.Unmarshal(config.MaxTokens, &m.maxTokens); err != nil || m.maxTokens < 0 {
				return "", fmt.Errorf("%s: max_length is %s: want a number, or null", configFile, config.MaxTokens)
			}
		}
	} else if len(modules) == 0 {
		return "", fmt.Errorf("neither %s nor %s says that this is a static model", configFile, modulesFile)
	}
	prefixes, stated, _, err := f.Prompts()
	if err != nil {
		return "", err
	}
	m.prefixes = prefixes
	normalizeFrom, maxTokensFrom := from, from
	var limits struct {
		MaxTokens int `json:"max_seq_length"`
	}
	if _, err := f.ReadJSON(limitsFile, &limits); err != nil {
		return "", err
	} else if limits.MaxTokens > 0 { // written by models import --max-tokens
		m.maxTokens, maxTokensFrom = limits.MaxTokens, limitsFile
	}
	if o.normalize != nil {
		m.normalize, normalizeFrom = *o.normalize, fromUser
	}
	if o.maxTokens > 0 {
		m.maxTokens, maxTokensFrom = o.maxTokens, fromUser
	}
	for kind, prefix := range o.prefixes {
		m.prefixes[kind], stated[kind] = prefix, fromUser
	}
	const silent = "not stated by any file"
	unknown := "counted"
	if m.leaves {
		unknown = "left out"
	}
	m.settings = []embed.Setting{
		{Name: "pooling", Value: "mean", Source: "a static model has no other"},
		{Name: "unknown_tokens", Value: unknown, Source: "models of the form that " + from + " says"},
		{Name: "normalize", Value: strconv.FormatBool(m.normalize), Source: normalizeFrom},
		{Name: "max_tokens", Value: strconv.Itoa(m.maxTokens), Source: maxTokensFrom},
		{Name: "document_prefix", Value: m.prefixes[embed.Document], Source: cmp.Or(stated[embed.Document], silent)},
		{Name: "query_prefix", Value: m.prefixes[embed.Query], Source: cmp.Or(stated[embed.Query], silent)},
	}
	return in, nil
}

// readTable reads the vectors with their weights and mapping.
func (m *model) readTable(in io.Reader, size int64) error {
	found, err := safetensors.Read(in, size, "embeddings", "embedding.weight", "weights", "mapping")
	if err != nil {
		return err
	}
	table := cmp.Or(found["embeddings"], found["embedding.weight"])
	if table == nil || len(table.Shape) != 2 || table.Floats == nil {
		return errors.New("there is no table of vectors named embeddings or embedding.weight in it")
	}
	m.table, m.width = table.Floats, table.Shape[1]
	tokens, rows := int(m.tokenizer.MaxID())+1, table.Shape[0]
	if w := found["weights"]; w != nil {
		if m.weights = w.Floats; len(m.weights) < tokens {
			return fmt.Errorf("weights has %d numbers, and %s has tokens up to %d", len(m.weights), tokenizerFile, tokens-1)
		}
	}
	mapping := found["mapping"]
	if mapping == nil {
		if rows < tokens {
			return fmt.Errorf("%s has %d rows, and %s has tokens up to %d", table.Name, rows, tokenizerFile, tokens-1)
		}
		return nil
	}
	if m.rows = mapping.Ints; len(m.rows) < tokens {
		return fmt.Errorf("mapping has %d whole numbers, and %s has tokens up to %d", len(m.rows), tokenizerFile, tokens-1)
	}
	for token, row := range m.rows {
		if row < 0 || row >= int64(rows) {
			return fmt.Errorf("mapping leads from token %d to row %d, and %s has %d rows", token, row, table.Name, rows)
		}
	}
	return nil
}

// embed returns the answer for a text. ids is a buffer for its tokens, which is returned.
func (m *model) embed(kind embed.Kind, text string, ids []int32) (sdk.Answer, []int32) {
	ids, content, truncated := m.tokenizer.encode(ids, text, m.maxTokens)
	if prefix := m.prefixes[kind]; prefix != "" && content > 0 {
		ids, _, truncated = m.tokenizer.encode(ids[:0], prefix+text, m.maxTokens)
	}
	v, tokens := make([]float32, m.width), 0
	for _, id := range ids {
		if m.leaves && id == m.tokenizer.Unknown() {
			continue
		}
		tokens++
		m.add(v, id)
	}
	if tokens == 0 || content == 0 {
		return sdk.Answer{Empty: true}, ids
	}
	v = v[:m.dims:m.dims]
	square := 0.0
	for i := range v {
		v[i] /= float32(tokens)
		square += float64(v[i]) * float64(v[i])
	}
	if !(square > 0 && square <= math.MaxFloat64) {
		return sdk.Answer{Err: &sdk.TextError{
			Class: sdk.Invalid, Message: "what the table has for its tokens adds up to zero, or to too much",
		}}, ids
	}
	if m.normalize {
		length := math.Sqrt(square)
		for i, x := range v {
			v[i] = float32(float64(x) / length)
		}
	}
	return sdk.Answer{Vector: v, Tokens: tokens, Truncated: truncated}, ids
}

// add adds the vector of a token.
func (m *model) add(v []float32, id int32) {
	row, weight := int(id), float32(1)
	if m.rows != nil {
		row = int(m.rows[id])
	}
	if m.weights != nil {
		weight = m.weights[id]
	}
	for i, x := range m.table[row*m.width : (row+1)*m.width] {
		v[i] += weight * x
	}
}
