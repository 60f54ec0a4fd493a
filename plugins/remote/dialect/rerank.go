package dialect

import (
	"errors"
	"fmt"
	"math"
)

// The dialects that rerank: a query and texts in, scores out. Answers come best first, so each score has the index of
// its text, and nothing is believed of one without.

// cohereRerank is Cohere's POST /v2/rerank.
var cohereRerank = Dialect{
	Name: "cohere-rerank", URL: "https://api.cohere.com", Path: "/v2/rerank",
	Limits:  Limits{Texts: 1000, Tokens: 1 << 22, Bytes: 8 << 20},
	Reranks: true, Keyed: true, Cuts: []Truncate{CutEnd},
	body:   func(r Request) any { return r.rerank() },
	decode: rankedResults,
}

// rerank is what all but TEI take.
func (r Request) rerank() request {
	return request{"model": r.Model, "query": r.Asked, "documents": r.Texts}
}

// jinaRerank is POST /v1/rerank as Jina, vLLM, llama.cpp, LocalAI and others serve it.
var jinaRerank = Dialect{
	Name: "jina-rerank", URL: "https://api.jina.ai/v1", Path: "/rerank",
	Limits:  Limits{Texts: 1000, Tokens: 1 << 22, Bytes: 8 << 20},
	Reranks: true, Cuts: []Truncate{CutEnd},
	body:   func(r Request) any { return r.rerank().with("return_documents", false) },
	decode: rankedResults,
}

// voyageRerank is Voyage AI's POST /v1/rerank.
var voyageRerank = Dialect{
	Name: "voyage-rerank", URL: "https://api.voyageai.com/v1", Path: "/rerank",
	Limits:  Limits{Texts: 1000, Tokens: 100_000, Bytes: 8 << 20}, // the least of its models' limits
	Reranks: true, Keyed: true, Cuts: []Truncate{CutEnd},
	body: func(r Request) any {
		return r.rerank().with("return_documents", false).with("truncation", r.Truncate != CutNever)
	},
	decode: func(body []byte) (Answer, error) {
		var a struct {
			Data  []scored `json:"data"`
			Usage struct {
				Total count `json:"total_tokens"`
			} `json:"usage"`
		}
		err := read(body, &a)
		return ranked(a.Data, a.Usage.Total, err)
	},
}

// teiRerank is POST /rerank of Hugging Face's Text Embeddings Inference.
var teiRerank = Dialect{
	Name: "tei-rerank", Path: "/rerank", InfoPath: "/info",
	Limits:  Limits{Texts: 32, Tokens: 100_000, Bytes: 1 << 20},
	Reranks: true, Cuts: []Truncate{CutEnd, CutStart},
	body: func(r Request) any {
		return r.cutTEI(request{"query": r.Asked, "texts": r.Texts, "raw_scores": false, "return_text": false})
	},
	decode: func(body []byte) (Answer, error) {
		var a []scored
		err := read(body, &a)
		return ranked(a, 0, err)
	},
}

// scored is a score with the place of its text in the request.
type scored struct {
	Index     *place   `json:"index"`
	Relevance *float64 `json:"relevance_score"`
	Score     *float64 `json:"score"` // what TEI calls it
}

// rankedResults reads the answer of Cohere, and of those that took it over and count tokens.
func rankedResults(body []byte) (Answer, error) {
	var a struct {
		Results []scored `json:"results"`
		Usage   struct {
			Total count `json:"total_tokens"`
		} `json:"usage"`
	}
	err := read(body, &a)
	return ranked(a.Results, a.Usage.Total, err)
}

// ranked puts scores in the order of the texts.
func ranked(list []scored, tokens count, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	scores := make([]Vector, len(list))
	for _, one := range list {
		score := one.Relevance
		if score == nil {
			score = one.Score
		}
		switch {
		case one.Index == nil:
			return Answer{}, errors.New("a score has no index")
		case score == nil || math.IsInf(*score, 0):
			return Answer{}, errors.New("an index has no score")
		case *one.Index < 0 || int(*one.Index) >= len(list) || scores[*one.Index] != nil:
			return Answer{}, fmt.Errorf("the indexes are not those of %d texts, each once", len(list))
		}
		scores[*one.Index] = Vector{float32(*score)}
	}
	return Answer{Vectors: scores, Tokens: int(tokens)}, nil
}
