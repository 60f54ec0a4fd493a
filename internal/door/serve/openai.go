package serve

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// embeddingsRequest is OpenAI's, with one word more. Fields that are not here are ignored, as they do not change a
// vector.
type embeddingsRequest struct {
	Input      json.RawMessage `json:"input"` // a text, or a list of texts
	Model      string          `json:"model"` // "": the default
	Format     string          `json:"encoding_format"`
	Dimensions *int            `json:"dimensions"`
	InputType  string          `json:"input_type"` // ours: document (the default) or query
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // numbers, or these as little-endian float32s in base64
}

// usage counts the tokens that the model read. A text that is remembered from before costs none.
type usage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// embeddings answers POST /v1/embeddings.
func (a *api) embeddings(w http.ResponseWriter, r *http.Request) error {
	var req embeddingsRequest
	if err := a.readJSON(r, &req, false); err != nil {
		return err
	}
	texts, err := a.texts(req.Input)
	if err != nil {
		return err
	}
	kind, err := kindOf(req.InputType)
	if err != nil {
		return err
	}
	asBase64 := req.Format == "base64"
	if !asBase64 && req.Format != "" && req.Format != "float" {
		return refuse("encoding_format", "invalid_value", "encoding_format: expected float or base64, not %q",
			cut(req.Format))
	}
	name, model, err := a.named(r, req.Model)
	if err != nil {
		return err
	}
	about, err := model.Describe(r.Context())
	if err != nil {
		return err
	}
	if req.Dimensions != nil && *req.Dimensions != about.Dims {
		return refuse("dimensions", "invalid_value", "dimensions: the vectors of %s are %d wide and cannot be had otherwise",
			name, about.Dims)
	}
	if about.Sparse {
		return refuse("model", "sparse_model",
			"model: the vectors of %s are sparse, which this format cannot hold; a pipeline of this model is searched at /v1/pipelines/NAME/search", name)
	}
	if err := askerOf(r).share.vectors(len(texts), about.Dims); err != nil {
		return err
	}
	results, err := model.Ask(r.Context(), kind, texts)
	if err != nil {
		return err
	}
	var used usage
	truncated := 0
	for i, result := range results {
		if err := usable(i, result); err != nil {
			return err
		}
		used.PromptTokens += result.Tokens
		if result.Truncated {
			truncated++
		}
	}
	used.TotalTokens = used.PromptTokens
	if truncated > 0 {
		w.Header().Set("X-Embedsidecar-Truncated", strconv.Itoa(truncated))
	}
	return writeEmbeddings(w, results, asBase64, name, used)
}

// writeEmbeddings writes the answer vector by vector: as a whole it would take many times the memory of its vectors.
func writeEmbeddings(w http.ResponseWriter, results []embed.Result, asBase64 bool, model string, used usage) error {
	ending, err := json.Marshal(struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	}{model, used})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	const portion = 64 << 10
	out := bufio.NewWriterSize(w, portion)
	_, _ = out.WriteString(`{"object":"list","data":[`)
	for i, result := range results {
		e := embedding{Object: "embedding", Index: i, Embedding: result.Vector}
		if asBase64 {
			e.Embedding = packed(result.Vector)
		}
		line, err := json.Marshal(e)
		if err != nil {
			panic(http.ErrAbortHandler) // half an answer is written: the client must not take it for a whole one
		}
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(line)
	}
	_, _ = out.WriteString("],")
	_, _ = out.Write(ending[1:])
	_ = out.Flush() // a client that has gone misses nothing
	return nil
}

// usable returns why a text has no vector, as the problem of its place in the request.
func usable(i int, result embed.Result) error {
	param := "input[" + strconv.Itoa(i) + "]"
	if result.Empty {
		return refuse(param, "empty", "%s holds nothing to embed", param)
	}
	if result.Err == nil {
		return nil
	}
	text, ok := errors.AsType[*embed.TextError](result.Err)
	if !ok || text.Class != embed.Data {
		return &embed.Error{Class: embed.Transient, Code: "unavailable", Err: result.Err}
	}
	return refuse(param, text.Code, "%s cannot be embedded: %s", param, text.Message)
}

// texts reads the input.
func (a *api) texts(input json.RawMessage) ([]string, error) {
	if len(input) == 0 || string(input) == "null" {
		return nil, refuse("input", "missing", "input is missing: a text, or a list of texts")
	}
	var texts []string
	switch input[0] {
	case '"':
		texts = make([]string, 1)
		if err := json.Unmarshal(input, &texts[0]); err != nil {
			return nil, refuse("input", "type", "input: %s", err)
		}
	case '[':
		var err error
		if texts, err = a.list(input); err != nil {
			return nil, err
		}
	default:
		return nil, refuse("input", "type", "input: expected a text, or a list of texts")
	}
	for i, text := range texts {
		switch {
		case len(text) > a.Limits.TextBytes:
			return nil, refuse("input", "too_long", "input[%d] has %d bytes, %d are possible", i, len(text), a.Limits.TextBytes)
		case strings.TrimSpace(text) == "":
			return nil, refuse("input", "empty", "input[%d] holds nothing to embed", i)
		}
	}
	return texts, nil
}

// list reads a list of texts, and no more of it than may be asked for.
func (a *api) list(input json.RawMessage) (texts []string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(input))
	if _, err := decoder.Token(); err != nil {
		return nil, refuse("input", "type", "input: %s", err)
	}
	for decoder.More() {
		i := len(texts)
		if i == a.Limits.Inputs {
			return nil, refuse("input", "too_many_inputs",
				"input has more than %d texts, which are possible: send fewer at a time", a.Limits.Inputs)
		}
		item, err := decoder.Token()
		if err != nil {
			return nil, refuse("input", "type", "input[%d]: %s", i, err)
		}
		switch item := item.(type) {
		case string:
			texts = append(texts, item)
		case float64:
			return nil, noTokens()
		case json.Delim:
			if item == '[' {
				return nil, noTokens()
			}
			return nil, refuse("input", "type", "input[%d]: expected a text", i)
		default:
			return nil, refuse("input", "type", "input[%d]: expected a text", i)
		}
	}
	if len(texts) == 0 {
		return nil, refuse("input", "empty", "input is an empty list")
	}
	return texts, nil
}

func noTokens() error {
	return refuse("input", "tokens_not_supported",
		"input: lists of tokens are not taken, as every model has tokens of its own: send texts")
}

// kindOf reads input_type. The words of other providers' APIs are taken, too.
func kindOf(word string) (embed.Kind, error) {
	switch word {
	case "", "document", "search_document", "passage":
		return embed.Document, nil
	case "query", "search_query":
		return embed.Query, nil
	}
	return 0, refuse("input_type", "invalid_value", "input_type: expected document or query, not %q", cut(word))
}

// named returns a model and its name.
func (a *api) named(r *http.Request, name string) (string, query.Model, error) {
	only := askerOf(r).grant.Pipelines
	if name == "" {
		known, err := a.Backend.Models(r.Context(), only)
		if err != nil {
			return "", nil, err
		}
		if len(known) == 0 {
			return "", nil, &search.UnavailableError{Problem: "there is no model"}
		}
		name = known[0]
	}
	model, err := a.Backend.Model(r.Context(), only, name)
	if errors.Is(err, query.ErrUnknown) {
		err = noModel(name)
	}
	return name, model, err
}

// noModel is the answer for a model that is not there.
func noModel(name string) error {
	return &problem{
		status: http.StatusNotFound, kind: invalidRequest, code: "model_not_found", param: "model",
		message: "the model " + strconv.Quote(cut(name)) + " does not exist here: GET /v1/models lists those that do",
	}
}

// packed writes a vector as OpenAI's clients ask for it.
func packed(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

type modelEntry struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func entryOf(name string) modelEntry {
	return modelEntry{ID: name, Object: "model", OwnedBy: "embedsidecar"}
}

// models answers GET /v1/models.
func (a *api) models(w http.ResponseWriter, r *http.Request) error {
	names, err := a.Backend.Models(r.Context(), askerOf(r).grant.Pipelines)
	if err != nil {
		return err
	}
	entries := make([]modelEntry, len(names))
	for i, name := range names {
		entries[i] = entryOf(name)
	}
	return writeJSON(w, map[string]any{"object": "list", "data": entries})
}

// model answers GET /v1/models/NAME: what OpenAI says of a model and, if it has been used, what this one is. A model
// starts a program and may cost money: to look at it does neither.
func (a *api) model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	about, err := a.Backend.Known(r.Context(), askerOf(r).grant.Pipelines, name)
	if errors.Is(err, query.ErrUnknown) {
		err = noModel(name)
	}
	if err != nil {
		return err
	}
	answer := struct {
		modelEntry
		Dims        int    `json:"dims,omitempty"`
		MaxTokens   int    `json:"max_tokens,omitempty"`
		Fingerprint string `json:"fingerprint,omitempty"`
		Sparse      bool   `json:"sparse,omitempty"`
	}{modelEntry: entryOf(name)}
	if about != nil {
		answer.Dims, answer.MaxTokens = about.Dims, about.MaxTokens
		answer.Fingerprint, answer.Sparse = about.Fingerprint, about.Sparse
	}
	return writeJSON(w, answer)
}
