// Package dialect describes the HTTP APIs of embedding servers: the form of requests, how to read vectors and errors
// from an answer, and the limits of each API. It opens no connection and keeps no state.
package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Truncate says how to shorten a text that is longer than the model's limit.
type Truncate string

// The values of Truncate.
const (
	CutEnd   Truncate = "end"   // drop its end
	CutStart Truncate = "start" // drop its beginning
	CutNever Truncate = "error" // it fails
)

// Request is the content of one call.
type Request struct {
	Model     string
	Query     bool   // the texts are queries, not documents
	Asked     string // a reranker's query
	Texts     []string
	Dims      int // requested width; 0: the model's own
	Truncate  Truncate
	Normalize bool // vectors of length 1
	Float     bool // plain numbers, even if base64 is supported
}

// Answer is the result of one call: one vector per text, in order. The width and numbers of a vector are not validated;
// null becomes NaN. In a sparse dialect a vector is sorted pairs without zeros; in one that reranks it is a score.
type Answer struct {
	Vectors []Vector
	Tokens  int // of all texts together; 0: not reported
}

// Limits are a server's limits of one request.
type Limits struct{ Texts, Tokens, Bytes int }

// Dialect is one API. Its functions are pure.
type Dialect struct {
	Name string
	// URL is the provider's; "": users configure their own.
	URL string
	// Path is appended to the URL; {model} in it is the model.
	Path string
	// KeyHeader is the header of the key; "": Authorization: Bearer.
	KeyHeader string
	// Limits are the provider's documented ones, or a server's defaults.
	Limits Limits
	// Kinds: the API distinguishes documents from queries.
	Kinds bool
	// Cuts are the ways in which the server itself can shorten a text.
	Cuts []Truncate
	// Keyed: the provider requires a key.
	Keyed bool
	// Signed: requests are signed with AWS credentials if there is no key.
	Signed bool
	// Sparse: vectors are pairs (embed.Pairs), which do not show their width.
	Sparse bool
	// Reranks: it returns scores for a query and texts, not vectors.
	Reranks bool
	// InfoPath is the path of the server's description of its model; "": none.
	InfoPath string

	// Body is the request's body, a value for encoding/json.
	Body   func(Request) any
	decode func(body []byte) (Answer, error)
}

// All returns the dialects.
func All() []*Dialect {
	return []*Dialect{
		&bedrockCohere, &bedrockTitan, &cohere, &cohereRerank, &gemini, &jinaRerank, &ollama, &openAI, &tei, &teiRerank,
		&teiSparse, &voyage, &voyageRerank,
	}
}

// Named returns the dialect with a name.
func Named(name string) (*Dialect, error) {
	var names []string
	for _, d := range All() {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return nil, fmt.Errorf("unknown dialect %q: want one of %s", name, strings.Join(names, ", "))
}

// PathOf is a model's path below the URL.
func (d *Dialect) PathOf(model string) string { return strings.ReplaceAll(d.Path, "{model}", model) }

// CutsItself reports whether the server itself can shorten texts in this way.
func (d *Dialect) CutsItself(how Truncate) bool { return slices.Contains(d.Cuts, how) }

// Decode reads an answer to count texts. Its error never quotes the answer.
func (d *Dialect) Decode(body []byte, count int) (Answer, error) {
	a, err := d.decode(body)
	if err != nil {
		return Answer{}, err
	}
	if len(a.Vectors) != count {
		what := "vectors"
		if d.Reranks {
			what = "scores"
		}
		return Answer{}, fmt.Errorf("%d %s for %d texts", len(a.Vectors), what, count)
	}
	a.Tokens = max(a.Tokens, 0)
	return a, nil
}

// indexed is a vector with the index of its text.
type indexed struct {
	Index     *place `json:"index"`
	Embedding Vector `json:"embedding"`
}

// inOrder sorts vectors into the order of the texts. Servers without any index answer in order.
func inOrder(data []indexed) ([]Vector, error) {
	vectors := make([]Vector, len(data))
	seen := make([]bool, len(data))
	bare := !slices.ContainsFunc(data, func(d indexed) bool { return d.Index != nil })
	for i, d := range data {
		at := i
		if !bare {
			if d.Index == nil {
				return nil, errors.New("some vectors have an index and some have none")
			}
			at = int(*d.Index)
		}
		if at < 0 || at >= len(data) || seen[at] {
			return nil, fmt.Errorf("the indexes are not 0 to %d-1, each once", len(data))
		}
		vectors[at], seen[at] = d.Embedding, true
	}
	return vectors, nil
}

// Texts are the names of fields with texts in all dialects.
var Texts = []string{"input", "inputs", "texts", "requests", "query", "documents", "instances", "inputText"}

// request is a request's body by field name.
type request map[string]any

// with sets a field.
func (b request) with(name string, value any) request {
	b[name] = value
	return b
}

// wide sets the requested width, unless it is 0, the model's own.
func (b request) wide(name string, dims int) request {
	if dims > 0 {
		b[name] = dims
	}
	return b
}

// cutTEI sets how TEI cuts long texts.
func (r Request) cutTEI(b request) request {
	return b.with("truncate", r.Truncate != CutNever).
		with("truncation_direction", either(r.Truncate == CutStart, "Left", "Right"))
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// Merge merges fields into others: objects recursively; any other value replaces the old one. A null stays null, so
// that Write removes the field.
func Merge(into, fields map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for name, value := range fields {
		inner, is := value.(map[string]any)
		before, was := into[name].(map[string]any)
		if is && was {
			into[name] = Merge(maps.Clone(before), inner)
			continue
		}
		into[name] = value
	}
	return into
}

// Write returns a request as JSON, with the user's fields merged in; null removes a field.
func Write(body any, fields map[string]any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil || len(fields) == 0 {
		return data, err
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	all = Merge(all, fields)
	dropNulls(all)
	return json.Marshal(all)
}

func dropNulls(all map[string]any) {
	for name, value := range all {
		if inner, is := value.(map[string]any); is {
			dropNulls(inner)
		} else if value == nil {
			delete(all, name)
		}
	}
}
