package remotetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// The requests as the public descriptions of the APIs give them: these fields and no others. Written by hand from
// them, not from the client.
type (
	openAIBody struct {
		Input          json.RawMessage `json:"input"`
		Model          string          `json:"model"`
		Dimensions     *int            `json:"dimensions"`
		EncodingFormat *string         `json:"encoding_format"`
		User           *string         `json:"user"`
	}
	voyageBody struct {
		Input           json.RawMessage `json:"input"`
		Model           string          `json:"model"`
		InputType       *string         `json:"input_type"`
		Truncation      *bool           `json:"truncation"`
		OutputDimension *int            `json:"output_dimension"`
		OutputDtype     *string         `json:"output_dtype"`
		EncodingFormat  *string         `json:"encoding_format"`
	}
	cohereBody struct {
		Texts           []string `json:"texts"`
		Model           string   `json:"model"`
		InputType       string   `json:"input_type"`
		MaxTokens       *int     `json:"max_tokens"`
		OutputDimension *int     `json:"output_dimension"`
		EmbeddingTypes  []string `json:"embedding_types"`
		Truncate        *string  `json:"truncate"`
	}
	geminiBody struct {
		Requests []struct {
			Model   string `json:"model"`
			Content struct {
				Parts []struct {
					Text string `json:"text"`
				} `json:"parts"`
			} `json:"content"`
			TaskType             *string `json:"taskType"`
			Title                *string `json:"title"`
			OutputDimensionality *int    `json:"outputDimensionality"`
		} `json:"requests"`
	}
	ollamaBody struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Truncate   *bool           `json:"truncate"`
		Dimensions *int            `json:"dimensions"`
		KeepAlive  json.RawMessage `json:"keep_alive"`
		Options    json.RawMessage `json:"options"`
	}
	cohereRerankBody struct {
		Model           string   `json:"model"`
		Query           string   `json:"query"`
		Documents       []string `json:"documents"`
		TopN            *int     `json:"top_n"`
		MaxTokensPerDoc *int     `json:"max_tokens_per_doc"`
		Priority        *int     `json:"priority"`
	}
	jinaRerankBody struct {
		Model           string   `json:"model"`
		Query           string   `json:"query"`
		Documents       []string `json:"documents"`
		TopN            *int     `json:"top_n"`
		ReturnDocuments *bool    `json:"return_documents"`
	}
	voyageRerankBody struct {
		Model           string   `json:"model"`
		Query           string   `json:"query"`
		Documents       []string `json:"documents"`
		TopK            *int     `json:"top_k"`
		ReturnDocuments *bool    `json:"return_documents"`
		Truncation      *bool    `json:"truncation"`
	}
	teiRerankBody struct {
		Query               string   `json:"query"`
		Texts               []string `json:"texts"`
		RawScores           *bool    `json:"raw_scores"`
		ReturnText          *bool    `json:"return_text"`
		Truncate            *bool    `json:"truncate"`
		TruncationDirection *string  `json:"truncation_direction"`
	}
	teiSparseBody struct {
		Inputs              json.RawMessage `json:"inputs"`
		PromptName          *string         `json:"prompt_name"`
		Truncate            *bool           `json:"truncate"`
		TruncationDirection *string         `json:"truncation_direction"`
	}
	teiBody struct {
		Inputs              json.RawMessage `json:"inputs"`
		Normalize           *bool           `json:"normalize"`
		PromptName          *string         `json:"prompt_name"`
		Truncate            *bool           `json:"truncate"`
		TruncationDirection *string         `json:"truncation_direction"`
		Dimensions          *int            `json:"dimensions"`
	}
)

// read takes a request apart, or says what the provider would have against it.
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
	switch s.Dialect {
	case "openai":
		var b openAIBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return b.Input, b.Dimensions })
		c.Base64 = b.EncodingFormat != nil && *b.EncodingFormat == "base64"
		err = errors.Join(err, need(b.Model != "", "model"), oneOf(b.EncodingFormat, "float", "base64"))
	case "voyage":
		var b voyageBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return b.Input, b.OutputDimension })
		c.Base64 = b.EncodingFormat != nil
		c.Query = b.InputType != nil && *b.InputType == "query"
		err = errors.Join(err, need(b.Model != "", "model"), oneOf(b.EncodingFormat, "base64"), oneOf(b.InputType, "query",
			"document"))
	case "cohere":
		var b cohereBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return nil, b.OutputDimension })
		c.Texts, c.Query = b.Texts, b.InputType == "search_query"
		err = errors.Join(err, need(b.Model != "", "model"), need(len(b.Texts) > 0 && len(b.Texts) <= 96, "1 to 96 texts"),
			oneOf(&b.InputType, "search_document", "search_query", "classification", "clustering"), oneOf(b.Truncate, "NONE",
				"START", "END"),
			need(len(b.EmbeddingTypes) == 1 && b.EmbeddingTypes[0] == "float", "embedding_types"))
	case "gemini":
		var b geminiBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return nil, nil })
		err = errors.Join(err, need(len(b.Requests) <= 100, "at most 100 requests"))
		for _, one := range b.Requests {
			err = errors.Join(err, need(strings.Contains(r.URL.Path, one.Model+":"), "the model of the path"),
				need(len(one.Content.Parts) == 1, "a part"), oneOf(one.TaskType, "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"))
			for _, part := range one.Content.Parts {
				c.Texts = append(c.Texts, part.Text)
			}
			c.Query = one.TaskType != nil && *one.TaskType == "RETRIEVAL_QUERY"
			if one.OutputDimensionality != nil {
				c.Dims = *one.OutputDimensionality
			}
		}
	case "ollama":
		var b ollamaBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return b.Input, b.Dimensions })
		err = errors.Join(err, need(b.Model != "", "model"))
	case "tei":
		var b teiBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return b.Inputs, b.Dimensions })
		err = errors.Join(err, oneOf(b.TruncationDirection, "Left", "Right"),
			need(len(c.Texts) <= 32, "batch size of at most 32"))
	case "cohere-rerank", "jina-rerank", "voyage-rerank", "tei-rerank":
		err = s.readRerank(c)
	case "tei-sparse":
		var b teiSparseBody
		err = c.fill(body, &b, func() (json.RawMessage, *int) { return b.Inputs, nil })
		err = errors.Join(err, oneOf(b.TruncationDirection, "Left", "Right"),
			need(len(c.Texts) <= 32, "batch size of at most 32"))
	default:
		err = fmt.Errorf("no dialect %q", s.Dialect)
	}
	for _, text := range c.Texts {
		err = errors.Join(err, need(text != "", "texts that are not empty"))
	}
	return c, err
}

// readRerank reads a request to rerank.
func (s *Server) readRerank(c *Call) (err error) {
	model, none := "m", func() (json.RawMessage, *int) { return nil, nil }
	switch s.Dialect {
	case "cohere-rerank":
		var b cohereRerankBody
		err = c.fill(c.Body, &b, none)
		model, c.Asked, c.Texts = b.Model, b.Query, b.Documents
	case "jina-rerank":
		var b jinaRerankBody
		err = c.fill(c.Body, &b, none)
		model, c.Asked, c.Texts = b.Model, b.Query, b.Documents
	case "voyage-rerank":
		var b voyageRerankBody
		err = c.fill(c.Body, &b, none)
		model, c.Asked, c.Texts = b.Model, b.Query, b.Documents
	default:
		var b teiRerankBody
		err = c.fill(c.Body, &b, none)
		c.Asked, c.Texts = b.Query, b.Texts
		err = errors.Join(err, oneOf(b.TruncationDirection, "Left", "Right"),
			need(len(c.Texts) <= 32, "batch size of at most 32"))
	}
	return errors.Join(err, need(model != "", "model"), need(c.Asked != "", "query"),
		need(len(c.Texts) > 0 && len(c.Texts) <= 1000, "1 to 1000 documents"))
}

// fill reads a body strictly.
func (c *Call) fill(body []byte, into any, parts func() (json.RawMessage, *int)) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	input, dims := parts()
	if dims != nil {
		c.Dims = *dims
	}
	if input == nil {
		return nil
	}
	var one string
	if json.Unmarshal(input, &one) == nil {
		c.Texts = []string{one}
		return nil
	}
	return json.Unmarshal(input, &c.Texts)
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
