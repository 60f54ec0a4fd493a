package dialect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// errJSON replaces the decoder's own errors, which quote the answer.
var errJSON = errors.New("the answer is not the expected JSON")

func read(body []byte, into any) error {
	err := json.Unmarshal(bare(body), into)
	if err != nil && !errors.Is(err, errVector) {
		return errJSON
	}
	return err
}

// openAI is POST /v1/embeddings as OpenAI, vLLM, llama.cpp, LM Studio and many others serve it.
var openAI = Dialect{
	Name: "openai", URL: "https://api.openai.com/v1", Path: "/embeddings",
	Limits: Limits{Texts: 2048, Tokens: 300_000, Bytes: 8 << 20},
	Body: func(r Request) any {
		b := request{"model": r.Model, "input": r.Texts, "encoding_format": either(r.Float, "float", "base64")}
		return b.wide("dimensions", r.Dims)
	},
	decode: decodeList,
}

// decodeList reads the answer of OpenAI and Voyage.
func decodeList(body []byte) (Answer, error) {
	var a struct {
		Data  []indexed `json:"data"`
		Usage struct {
			Prompt count `json:"prompt_tokens"`
			Total  count `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := read(body, &a); err != nil {
		return Answer{}, err
	}
	vectors, err := inOrder(a.Data)
	return Answer{Vectors: vectors, Tokens: int(max(a.Usage.Prompt, a.Usage.Total))}, err
}

// voyage is Voyage AI's POST /v1/embeddings.
var voyage = Dialect{
	Name: "voyage", URL: "https://api.voyageai.com/v1", Path: "/embeddings",
	Limits: Limits{Texts: 1000, Tokens: 120_000, Bytes: 8 << 20}, // the lowest of its models' limits
	Kinds:  true, Keyed: true, Cuts: []Truncate{CutEnd},
	Body: func(r Request) any {
		b := request{
			"model": r.Model, "input": r.Texts, "input_type": either(r.Query, "query", "document"),
			"truncation": r.Truncate != CutNever,
		}
		if !r.Float {
			b["encoding_format"] = "base64"
		}
		return b.wide("output_dimension", r.Dims)
	},
	decode: decodeList,
}

// cohere is Cohere's POST /v2/embed.
var cohere = Dialect{
	Name: "cohere", URL: "https://api.cohere.com", Path: "/v2/embed",
	Limits: Limits{Texts: 96, Tokens: 128_000, Bytes: 8 << 20},
	Kinds:  true, Keyed: true, Cuts: []Truncate{CutEnd, CutStart},
	Body: func(r Request) any {
		cut := map[Truncate]string{CutEnd: "END", CutStart: "START", CutNever: "NONE"}
		return request{
			"model": r.Model, "texts": r.Texts, "input_type": either(r.Query, "search_query", "search_document"),
			"embedding_types": []string{"float"}, "truncate": cut[r.Truncate],
		}.wide("output_dimension", r.Dims)
	},
	decode: func(body []byte) (Answer, error) {
		var a struct {
			Embeddings struct {
				Float []Vector `json:"float"`
			} `json:"embeddings"`
			Meta struct {
				Billed struct {
					Input count `json:"input_tokens"`
				} `json:"billed_units"`
			} `json:"meta"`
		}
		err := read(body, &a)
		return Answer{Vectors: a.Embeddings.Float, Tokens: int(a.Meta.Billed.Input)}, err
	},
}

// gemini is POST :batchEmbedContents of the Gemini API.
var gemini = Dialect{
	Name: "gemini", URL: "https://generativelanguage.googleapis.com/v1beta", Path: "/models/{model}:batchEmbedContents",
	KeyHeader: "x-goog-api-key", Limits: Limits{Texts: 100, Tokens: 100_000, Bytes: 8 << 20},
	Kinds: true, Keyed: true, Cuts: []Truncate{CutEnd},
	Body: func(r Request) any {
		var all []request
		for _, text := range r.Texts {
			all = append(all, request{
				"model": "models/" + r.Model, "taskType": either(r.Query, "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"),
				"content": request{"parts": []request{{"text": text}}},
			}.wide("outputDimensionality", r.Dims))
		}
		return request{"requests": all}
	},
	decode: func(body []byte) (Answer, error) {
		var a struct {
			Embeddings []struct {
				Values Vector `json:"values"`
			} `json:"embeddings"`
		}
		err := read(body, &a)
		answer := Answer{}
		for _, e := range a.Embeddings {
			answer.Vectors = append(answer.Vectors, e.Values)
		}
		return answer, err
	},
}

// bedrockTitan is InvokeModel of Amazon Bedrock with Amazon's own models, which accept one text.
var bedrockTitan = Dialect{
	Name: "bedrock-titan", Path: "/model/{model}/invoke", Signed: true,
	Limits: Limits{Texts: 1, Tokens: 100_000, Bytes: 8 << 20},
	Body: func(r Request) any {
		b := request{"inputText": strings.Join(r.Texts, "")}.wide("dimensions", r.Dims)
		if !r.Normalize { // only newer models know it, and they normalize by default
			b["normalize"] = false
		}
		return b
	},
	decode: func(body []byte) (Answer, error) {
		var a struct {
			Embedding Vector `json:"embedding"`
			Tokens    count  `json:"inputTextTokenCount"`
		}
		if err := read(body, &a); err != nil || a.Embedding == nil { // Decode checks the count
			return Answer{}, err
		}
		return Answer{Vectors: []Vector{a.Embedding}, Tokens: int(a.Tokens)}, nil
	},
}

// bedrockCohere is InvokeModel of Amazon Bedrock with Cohere's models.
var bedrockCohere = Dialect{
	Name: "bedrock-cohere", Path: "/model/{model}/invoke", Signed: true, Limits: cohere.Limits,
	Kinds: true, Cuts: cohere.Cuts,
	Body: func(r Request) any {
		cut := map[Truncate]string{CutEnd: "END", CutStart: "START", CutNever: "NONE"}
		if strings.Contains(r.Model, "embed-v4") {
			cut = map[Truncate]string{CutEnd: "RIGHT", CutStart: "LEFT", CutNever: "NONE"}
		}
		return request{
			"texts": r.Texts, "input_type": either(r.Query, "search_query", "search_document"),
			"embedding_types": []string{"float"}, "truncate": cut[r.Truncate],
		}.wide("output_dimension", r.Dims)
	},
	decode: cohere.decode,
}

// ollama is Ollama's POST /api/embed.
var ollama = Dialect{
	Name: "ollama", URL: "http://127.0.0.1:11434", Path: "/api/embed",
	Limits: Limits{Texts: 64, Tokens: 100_000, Bytes: 4 << 20},
	Cuts:   []Truncate{CutEnd},
	Body: func(r Request) any {
		return request{"model": r.Model, "input": r.Texts, "truncate": r.Truncate == CutEnd}.wide("dimensions", r.Dims)
	},
	decode: func(body []byte) (Answer, error) {
		var a struct {
			Embeddings []Vector `json:"embeddings"`
			Tokens     count    `json:"prompt_eval_count"`
		}
		err := read(body, &a)
		return Answer{Vectors: a.Embeddings, Tokens: int(a.Tokens)}, err
	},
}

// tei is POST /embed of Hugging Face's Text Embeddings Inference.
var tei = Dialect{
	Name: "tei", Path: "/embed", InfoPath: "/info",
	Limits: Limits{Texts: 32, Tokens: 100_000, Bytes: 1 << 20},
	Cuts:   []Truncate{CutEnd, CutStart},
	Body: func(r Request) any {
		return r.cutTEI(request{"inputs": r.Texts, "normalize": r.Normalize}).wide("dimensions", r.Dims)
	},
	decode: func(body []byte) (Answer, error) {
		var vectors []Vector
		err := read(body, &vectors)
		return Answer{Vectors: vectors}, err
	},
}

// Info is a server's answer at InfoPath.
type Info struct {
	Identity  string // the weights and how they are used, as far as the server reports them
	MaxTokens int    // of one text
	MaxTexts  int    // in one request
}

// ReadInfo reads the answer of InfoPath.
func ReadInfo(body []byte) (Info, error) {
	var a struct {
		ID        string          `json:"model_id"`
		SHA       string          `json:"model_sha"`
		DType     string          `json:"model_dtype"`
		Type      json.RawMessage `json:"model_type"`
		MaxTokens int             `json:"max_input_length"`
		MaxTexts  int             `json:"max_client_batch_size"`
	}
	if err := read(body, &a); err != nil {
		return Info{}, err
	}
	identity, err := json.Marshal([]string{a.ID, a.SHA, a.DType, string(a.Type)})
	return Info{Identity: string(identity), MaxTokens: max(a.MaxTokens, 0), MaxTexts: max(a.MaxTexts, 0)}, err
}

// The dialects that rerank: a query and texts in, scores out. Answers are sorted by score, so each score must have the
// index of its text.

// cohereRerank is Cohere's POST /v2/rerank.
var cohereRerank = Dialect{
	Name: "cohere-rerank", URL: "https://api.cohere.com", Path: "/v2/rerank",
	Limits:  Limits{Texts: 1000, Tokens: 1 << 22, Bytes: 8 << 20},
	Reranks: true, Keyed: true, Cuts: []Truncate{CutEnd},
	Body:   func(r Request) any { return r.rerank() },
	decode: rankedResults,
}

// rerank is the request of all but TEI.
func (r Request) rerank() request {
	return request{"model": r.Model, "query": r.Asked, "documents": r.Texts}
}

// jinaRerank is POST /v1/rerank as Jina, vLLM, llama.cpp, LocalAI and others serve it.
var jinaRerank = Dialect{
	Name: "jina-rerank", URL: "https://api.jina.ai/v1", Path: "/rerank",
	Limits:  Limits{Texts: 1000, Tokens: 1 << 22, Bytes: 8 << 20},
	Reranks: true, Cuts: []Truncate{CutEnd},
	Body:   func(r Request) any { return r.rerank().with("return_documents", false) },
	decode: rankedResults,
}

// voyageRerank is Voyage AI's POST /v1/rerank.
var voyageRerank = Dialect{
	Name: "voyage-rerank", URL: "https://api.voyageai.com/v1", Path: "/rerank",
	Limits:  Limits{Texts: 1000, Tokens: 100_000, Bytes: 8 << 20}, // the lowest of its models' limits
	Reranks: true, Keyed: true, Cuts: []Truncate{CutEnd},
	Body: func(r Request) any {
		return r.rerank().with("return_documents", false).with("truncation", r.Truncate != CutNever)
	},
	decode: rankedResults,
}

// teiRerank is POST /rerank of Hugging Face's Text Embeddings Inference.
var teiRerank = Dialect{
	Name: "tei-rerank", Path: "/rerank", InfoPath: "/info",
	Limits:  Limits{Texts: 32, Tokens: 100_000, Bytes: 1 << 20},
	Reranks: true, Cuts: []Truncate{CutEnd, CutStart},
	Body: func(r Request) any {
		return r.cutTEI(request{"query": r.Asked, "texts": r.Texts, "raw_scores": false, "return_text": false})
	},
	decode: func(body []byte) (Answer, error) {
		var a []scored
		err := read(body, &a)
		return ranked(a, 0, err)
	},
}

// scored is a score with the index of its text.
type scored struct {
	Index     *place   `json:"index"`
	Relevance *float64 `json:"relevance_score"`
	Score     *float64 `json:"score"` // TEI's name
}

// rankedResults reads the answer of Cohere, Voyage AI and compatible servers.
func rankedResults(body []byte) (Answer, error) {
	var a struct {
		Results []scored `json:"results"`
		Data    []scored `json:"data"` // Voyage AI's name
		Usage   struct {
			Total count `json:"total_tokens"`
		} `json:"usage"`
	}
	err := read(body, &a)
	return ranked(append(a.Results, a.Data...), a.Usage.Total, err)
}

// ranked sorts scores into the order of the texts.
func ranked(list []scored, tokens count, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	scores := make([]Vector, len(list))
	for _, one := range list {
		score := one.Relevance
		score = cmp.Or(score, one.Score)
		switch {
		case one.Index == nil:
			return Answer{}, errors.New("a score has no index")
		case score == nil || math.IsInf(*score, 0):
			return Answer{}, errors.New("an index has no score")
		case *one.Index < 0 || int(*one.Index) >= len(list) || scores[*one.Index] != nil:
			return Answer{}, fmt.Errorf("the indexes are not 0 to %d-1, each once", len(list))
		}
		scores[*one.Index] = Vector{float32(*score)}
	}
	return Answer{Vectors: scores, Tokens: int(tokens)}, nil
}

// teiSparse is POST /embed_sparse of Text Embeddings Inference, for models with the pooling splade.
var teiSparse = Dialect{
	Name: "tei-sparse", Path: "/embed_sparse", InfoPath: "/info",
	Limits: Limits{Texts: 32, Tokens: 100_000, Bytes: 1 << 20},
	Cuts:   []Truncate{CutEnd, CutStart}, Sparse: true,
	Body: func(r Request) any { return r.cutTEI(request{"inputs": r.Texts}) },
	decode: func(body []byte) (Answer, error) {
		var lists [][]sparseNumber
		if err := read(body, &lists); err != nil {
			return Answer{}, err
		}
		var a Answer
		for _, list := range lists {
			v, err := pairsOf(list)
			if err != nil {
				return Answer{}, err
			}
			a.Vectors = append(a.Vectors, v)
		}
		return a, nil
	},
}

type sparseNumber struct {
	Index *uint32  `json:"index"`
	Value *float32 `json:"value"`
}

// pairsOf sorts numbers by index and drops zeros.
func pairsOf(list []sparseNumber) (Vector, error) {
	for i := range list {
		switch {
		case list[i].Index == nil || *list[i].Index >= embed.MaxSparseDims:
			return nil, errors.New("a number of a sparse vector has no index, or one that is too large")
		case list[i].Value == nil:
			nan := float32(math.NaN())
			list[i].Value = &nan
		}
	}
	slices.SortFunc(list, func(a, b sparseNumber) int { return cmp.Compare(*a.Index, *b.Index) })
	pairs := make(Vector, 0, 2*len(list))
	for _, n := range list {
		if *n.Value != 0 {
			pairs = append(pairs, float32(*n.Index), *n.Value)
		}
	}
	return pairs, nil
}
