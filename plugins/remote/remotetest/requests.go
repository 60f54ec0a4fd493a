package remotetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// fields are the documented fields of requests. They were written by hand from the APIs' documentation, not from the
// client.
var fields = map[string][]string{
	"openai":        {"input", "model", "dimensions", "encoding_format", "user"},
	"voyage":        {"input", "model", "input_type", "truncation", "output_dimension", "output_dtype", "encoding_format"},
	"bedrock-titan": {"inputText", "dimensions", "normalize", "embeddingTypes"},
	"bedrock-cohere": {
		"texts", "images", "inputs", "input_type", "max_tokens", "output_dimension", "embedding_types", "truncate",
	},
	"cohere":        {"texts", "model", "input_type", "max_tokens", "output_dimension", "embedding_types", "truncate"},
	"gemini":        {"requests"},
	"ollama":        {"model", "input", "truncate", "dimensions", "keep_alive", "options"},
	"tei":           {"inputs", "normalize", "prompt_name", "truncate", "truncation_direction", "dimensions"},
	"tei-sparse":    {"inputs", "prompt_name", "truncate", "truncation_direction"},
	"cohere-rerank": {"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"},
	"jina-rerank":   {"model", "query", "documents", "top_n", "return_documents"},
	"voyage-rerank": {"model", "query", "documents", "top_k", "return_documents", "truncation"},
	"tei-rerank":    {"query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction"},
}

// requestBody is a request with the fields of all dialects.
type requestBody struct {
	Input           texts    `json:"input"`
	Inputs          texts    `json:"inputs"`
	Texts           texts    `json:"texts"`
	InputText       texts    `json:"inputText"`
	Documents       texts    `json:"documents"`
	Model           string   `json:"model"`
	Query           string   `json:"query"`
	InputType       *string  `json:"input_type"`
	Dimensions      int      `json:"dimensions"`
	OutputDimension int      `json:"output_dimension"`
	EncodingFormat  *string  `json:"encoding_format"`
	EmbeddingTypes  []string `json:"embedding_types"`
	Direction       *string  `json:"truncation_direction"`
	Truncate        any      `json:"truncate"` // a string for Cohere, a boolean for others
	Requests        []any    `json:"requests"`

	Truncation      *bool `json:"truncation"`
	Normalize       *bool `json:"normalize"`
	RawScores       *bool `json:"raw_scores"`
	ReturnText      *bool `json:"return_text"`
	ReturnDocuments *bool `json:"return_documents"`
}

type geminiBody struct {
	Requests []struct {
		Model   string `json:"model"`
		Content struct {
			Parts []struct {
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"content"`
		TaskType             *string `json:"taskType"`
		Title                *string `json:"title"`
		OutputDimensionality int     `json:"outputDimensionality"`
	} `json:"requests"`
}

// texts are a list or a single string.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// read parses a request, or returns the provider's objection.
func (s *Server) read(r *http.Request) (*Call, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c := &Call{Body: body}
	if s.Dialect == "gemini" && s.Header == "" {
		c.Key = r.Header.Get("X-Goog-Api-Key")
	} else if s.Header != "" {
		c.Key = r.Header.Get(s.Header)
	} else {
		c.Key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		return nil, fmt.Errorf("content type %q", got)
	}
	var given map[string]json.RawMessage
	var b requestBody
	if err := errors.Join(json.Unmarshal(body, &given), json.Unmarshal(body, &b)); err != nil {
		return c, err
	}
	for name := range given {
		err = errors.Join(err, need(slices.Contains(fields[s.Dialect], name), "no field "+name))
	}
	c.Texts, c.Asked = slices.Concat(b.Input, b.Inputs, b.Texts, b.InputText, b.Documents), b.Query
	c.Dims = max(b.Dimensions, b.OutputDimension)
	c.Base64 = b.EncodingFormat != nil && *b.EncodingFormat == "base64"
	c.Query = b.InputType != nil && (*b.InputType == "query" || *b.InputType == "search_query")
	tei, most := strings.HasPrefix(s.Dialect, "tei"), 1<<16
	switch s.Dialect {
	case "openai":
		err = errors.Join(err, oneOf(b.EncodingFormat, "float", "base64"))
	case "voyage":
		err = errors.Join(err, oneOf(b.EncodingFormat, "base64"), oneOf(b.InputType, "query", "document"))
	case "bedrock-titan":
		most = 1
	case "cohere", "bedrock-cohere":
		most = 96
		cut, word := b.Truncate.(string)
		err = errors.Join(err, need(b.Truncate == nil || word, "a word"), oneOf(&cut, "", "NONE", "START", "END"),
			need(b.InputType != nil, "input_type"),
			oneOf(b.InputType, "search_document", "search_query", "classification", "clustering"),
			need(slices.Equal(b.EmbeddingTypes, []string{"float"}), "embedding_types"))
	case "gemini":
		return c, errors.Join(err, c.gemini(r.URL.Path))
	}
	if !strings.HasSuffix(s.Dialect, "cohere") {
		_, is := b.Truncate.(bool)
		err = errors.Join(err, need(b.Truncate == nil || is, "true or false"))
	}
	if strings.HasSuffix(s.Dialect, "-rerank") {
		most = 1000
		err = errors.Join(err, need(c.Asked != "", "query"), need(len(c.Texts) > 0, "documents"))
	}
	if tei {
		most = 32
	}
	for _, text := range c.Texts {
		err = errors.Join(err, need(text != "", "texts that are not empty"))
	}
	named := b.Model != "" || tei || strings.HasPrefix(s.Dialect, "bedrock") // whose model is in the path
	return c, errors.Join(err, need(named, "model"), oneOf(b.Direction, "Left", "Right"),
		need(len(c.Texts) <= most, fmt.Sprintf("batch size of at most %d", most)))
}

// gemini parses a request of the Gemini API.
func (c *Call) gemini(path string) error {
	var b geminiBody
	err := strictly(c.Body, &b)
	err = errors.Join(err, need(len(b.Requests) <= 100, "at most 100 requests"))
	for _, one := range b.Requests {
		err = errors.Join(err, need(strings.Contains(path, one.Model+":"), "the model of the path"),
			need(len(one.Content.Parts) == 1, "a part"), oneOf(one.TaskType, "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"))
		for _, part := range one.Content.Parts {
			c.Texts = append(c.Texts, part.Text)
			err = errors.Join(err, need(part.Text != "", "texts that are not empty"))
		}
		c.Query = one.TaskType != nil && *one.TaskType == "RETRIEVAL_QUERY"
		c.Dims = one.OutputDimensionality
	}
	return err
}

func need(ok bool, what string) error {
	if ok {
		return nil
	}
	return errors.New("expected " + what)
}

func oneOf(value *string, values ...string) error {
	if value == nil || slices.Contains(values, *value) {
		return nil
	}
	return fmt.Errorf("expected one of %s", strings.Join(values, ", "))
}
