package serve

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// embeddingsRequest is OpenAI's, with the additional field input_type. Unknown fields are ignored, since they do not
// change a vector.
type embeddingsRequest struct {
	Input      json.RawMessage `json:"input" doc:"A text, or a list of texts"`
	Model      string          `json:"model,omitempty" doc:"Absent: the default"`
	Format     string          `json:"encoding_format,omitempty" doc:"float (the default) or base64"`
	Dimensions *int            `json:"dimensions,omitempty" doc:"Must equal the width of the model's vectors"`
	InputType  string          `json:"input_type,omitempty" doc:"document (the default) or query"`
}

// embeddingsAnswer is OpenAI's, for the document.
type embeddingsAnswer struct {
	Object string      `json:"object"`
	Data   []embedding `json:"data"`
	Ending
}

// Ending follows the vectors in an answer.
type Ending struct {
	Model string `json:"model"`
	Usage usage  `json:"usage"`
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // numbers, or base64 of little-endian float32s
}

// usage counts the tokens of the texts, also of those whose vectors are cached.
type usage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// embeddings answers POST /v1/embeddings.
func (a *api) embeddings(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	var req embeddingsRequest
	if err := read(ctx, &req, false); err != nil {
		return nil, err
	}
	texts, err := a.texts(req.Input)
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(req.InputType)
	if err != nil {
		return nil, err
	}
	asBase64 := req.Format == "base64"
	if !asBase64 && req.Format != "" && req.Format != "float" {
		return nil, refuse("encoding_format", "invalid_value", "encoding_format: expected float or base64, not %q",
			cut(req.Format))
	}
	name, model, err := a.modelOf(ctx, req.Model)
	if err != nil {
		return nil, err
	}
	about, err := model.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if req.Dimensions != nil && *req.Dimensions != about.Dims {
		return nil, refuse("dimensions", "invalid_value", "dimensions: the vectors of %s have %d dimensions; no other value is possible",
			name, about.Dims)
	}
	if about.Sparse {
		return nil, refuse("model", "sparse_model",
			"model: the vectors of %s are sparse, which this format cannot hold; a pipeline of this model is searched at /v1/pipelines/NAME/search", name)
	}
	if err := gate.Vectors(ctx, len(texts), about.Dims); err != nil {
		return nil, err
	}
	results, err := model.Ask(ctx, kind, texts)
	if err != nil {
		return nil, err
	}
	var used usage
	truncated := 0
	for i, result := range results {
		if err := usable(i, result); err != nil {
			return nil, err
		}
		used.PromptTokens += result.Tokens
		if result.Truncated {
			truncated++
		}
	}
	used.TotalTokens = used.PromptTokens
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		if truncated > 0 {
			ctx.SetHeader("X-Embedsidecar-Truncated", strconv.Itoa(truncated))
		}
		writeEmbeddings(ctx, results, asBase64, Ending{name, used})
	}}, nil
}

// writeEmbeddings writes the answer vector by vector: as a whole it would need many times the memory of its vectors.
func writeEmbeddings(ctx huma.Context, results []embed.Result, asBase64 bool, end Ending) {
	const portion = 64 << 10
	ctx.SetHeader("Content-Type", "application/json")
	out := bufio.NewWriterSize(ctx.BodyWriter(), portion)
	write := func(value any) {
		text, err := json.Marshal(value)
		if err != nil {
			panic(http.ErrAbortHandler) // the client must notice that the answer is incomplete
		}
		_, _ = out.Write(text)
	}
	_, _ = out.WriteString(`{"object":"list","data":[`)
	for i, result := range results {
		e := embedding{Object: "embedding", Index: i, Embedding: result.Vector}
		if asBase64 {
			e.Embedding = packed(result.Vector)
		}
		if i > 0 {
			_ = out.WriteByte(',')
		}
		write(e)
	}
	_, _ = out.WriteString(`],"model":`)
	write(end.Model)
	_, _ = out.WriteString(`,"usage":`)
	write(end.Usage)
	_ = out.WriteByte('}')
	_ = out.Flush() // an error means that the client has gone
}

// usable returns why a text has no vector, as a problem at its index.
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
		case len(text) > a.TextBytes:
			return nil, refuse("input", "too_long", "input[%d] has %d bytes, the maximum is %d", i, len(text), a.TextBytes)
		case strings.TrimSpace(text) == "":
			return nil, refuse("input", "empty", "input[%d] holds nothing to embed", i)
		}
	}
	return texts, nil
}

// list reads a list of texts, up to the maximum number.
func (a *api) list(input json.RawMessage) (texts []string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(input))
	if _, err := decoder.Token(); err != nil {
		return nil, refuse("input", "type", "input: %s", err)
	}
	for decoder.More() {
		i := len(texts)
		if i == a.Inputs {
			return nil, refuse("input", "too_many_inputs",
				"input has more than the maximum of %d texts: send fewer at a time", a.Inputs)
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
		"input: lists of tokens are not supported, as every model has its own tokens: send texts")
}

// kindOf parses input_type. It also accepts the words of other providers.
func kindOf(word string) (embed.Kind, error) {
	switch word {
	case "", "document", "search_document", "passage":
		return embed.Document, nil
	case "query", "search_query":
		return embed.Query, nil
	}
	return 0, refuse("input_type", "invalid_value", "input_type: expected document or query, not %q", cut(word))
}

func (a *api) modelOf(ctx context.Context, name string) (string, query.Model, error) {
	who, _ := gate.CallerOf(ctx)
	if name == "" {
		known, err := a.Backend.Models(ctx, who.Pipelines)
		if err != nil {
			return "", nil, err
		}
		if len(known) == 0 {
			return "", nil, &search.UnavailableError{Problem: "there is no model"}
		}
		name = known[0]
	}
	model, err := a.Backend.Model(ctx, who.Pipelines, name)
	return name, model, noModel(name, err)
}

// noModel returns the answer for an unknown model.
func noModel(name string, err error) error {
	if !errors.Is(err, query.ErrUnknown) {
		return err
	}
	return gate.Refuse(http.StatusNotFound, "model_not_found",
		"the model "+strconv.Quote(cut(name))+" does not exist here: GET /v1/models lists those that do").At("model")
}

// packed encodes a vector in base64 as OpenAI's clients expect it.
func packed(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// modelEntry is OpenAI's entry for a model, with its properties once it has been used.
type modelEntry struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Dims        int    `json:"dims,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Sparse      bool   `json:"sparse,omitempty"`
}

func entryOf(name string) modelEntry {
	return modelEntry{ID: name, Object: "model", OwnedBy: "embedsidecar"}
}

type modelList struct {
	Object string       `json:"object"`
	Data   []modelEntry `json:"data"`
}

// models answers GET /v1/models.
func (a *api) models(ctx context.Context, _ *struct{}) (modelList, error) {
	who, _ := gate.CallerOf(ctx)
	names, err := a.Backend.Models(ctx, who.Pipelines)
	list := modelList{"list", make([]modelEntry, len(names))}
	for i, name := range names {
		list.Data[i] = entryOf(name)
	}
	return list, err
}

// model answers GET /v1/models/NAME. It starts no plugin, which would take time and may cost money.
func (a *api) model(ctx context.Context, in *named) (modelEntry, error) {
	who, _ := gate.CallerOf(ctx)
	answer := entryOf(in.Name)
	about, err := a.Backend.Known(ctx, who.Pipelines, in.Name)
	if about != nil {
		answer.Dims, answer.MaxTokens = about.Dims, about.MaxTokens
		answer.Fingerprint, answer.Sparse = about.Fingerprint, about.Sparse
	}
	return answer, noModel(in.Name, err)
}

// rerankPath is the path of Hugging Face's Text Embeddings Inference, for its clients.
const rerankPath = "/rerank"

// rerankRequest is TEI's, with the additional field model.
type rerankRequest struct {
	Query  string   `json:"query" doc:"Query that the texts should answer"`
	Texts  []string `json:"texts" maxItems:"1000" doc:"Texts to score"`
	Model  string   `json:"model,omitempty" doc:"One of the rerankers of the configuration. Absent: the default"`
	Return bool     `json:"return_text,omitempty" doc:"Return the texts"`

	Truncate  *bool  `json:"truncate,omitempty" doc:"Ignored: long texts are always truncated"`
	Direction string `json:"truncation_direction,omitempty" doc:"Ignored: the model decides"`
	Raw       bool   `json:"raw_scores,omitempty" doc:"Only false: scores are those of the model"`
}

type rank struct {
	Index int     `json:"index"`
	Text  string  `json:"text,omitempty"`
	Score float32 `json:"score"`
}

// rerank answers POST /rerank.
func (a *api) rerank(ctx context.Context, _ *struct{}) ([]rank, error) {
	var req rerankRequest
	if err := read(ctx, &req, true); err != nil {
		return nil, err
	}
	if err := a.checkRerank(&req); err != nil {
		return nil, err
	}
	who, _ := gate.CallerOf(ctx)
	scores, err := a.Backend.ScoreBy(ctx, who.Pipelines, req.Model, req.Query, req.Texts)
	if err != nil {
		return nil, noModel(req.Model, err)
	}
	ranks := make([]rank, len(scores))
	for i, score := range scores {
		ranks[i] = rank{Index: i, Score: score}
		if req.Return {
			ranks[i].Text = req.Texts[i]
		}
	}
	slices.SortStableFunc(ranks, func(x, y rank) int { return cmp.Compare(y.Score, x.Score) })
	return ranks, nil
}

func (a *api) checkRerank(req *rerankRequest) error {
	switch {
	case strings.TrimSpace(req.Query) == "":
		return refuse("query", "missing", "query is missing: what the texts are to answer")
	case len(req.Texts) == 0 || len(req.Texts) > search.MaxReranked:
		return refuse("texts", "invalid_value", "texts: expected 1 to %d, not %d", search.MaxReranked, len(req.Texts))
	case req.Raw:
		return refuse("raw_scores", "invalid_value", "raw_scores: scores are always those of the model")
	}
	for i, text := range append(slices.Clip(req.Texts), req.Query) {
		if len(text) > a.TextBytes {
			return refuse("texts", "too_long", "text %d has %d bytes, the maximum is %d", i, len(text), a.TextBytes)
		}
	}
	return nil
}
