// Package dialect holds the shapes of the HTTP APIs that turn texts into vectors: what a request looks like, how
// vectors and errors are read from an answer, and what each takes at once. It opens no connection and keeps no state.
package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Truncate says what happens to a text that is longer than the model reads.
type Truncate string

// The ways to deal with a text that is too long.
const (
	CutEnd   Truncate = "end"   // its end is left out
	CutStart Truncate = "start" // its beginning is left out
	CutNever Truncate = "error" // it fails
)

// Request is what one call asks for.
type Request struct {
	Model     string
	Query     bool   // the texts are questions, not what answers them
	Asked     string // of a reranker: the query that the texts are to answer
	Texts     []string
	Dims      int // width to ask for; 0: the model's own
	Truncate  Truncate
	Normalize bool // vectors of length 1
	Float     bool // numbers as numbers, also where base64 could be had
}

// Answer is what one call gave: as many vectors as there were texts, in their order. A vector may still be of any
// width and hold anything; what was null is NaN. Of a sparse dialect it is pairs, sorted and without zeros; of one that
// reranks it is a score.
type Answer struct {
	Vectors []Vector
	Tokens  int // read by the model, of all texts together; 0: not told
}

// Limits are what a server takes in one request.
type Limits struct{ Texts, Tokens, Bytes int }

// Dialect is one API. Its functions are pure.
type Dialect struct {
	Name string
	// URL is where the provider answers; "": every user has one of their own.
	URL string
	// Path is appended to the URL; {model} in it is the model.
	Path string
	// KeyHeader holds the key where it does not stand behind Authorization: Bearer.
	KeyHeader string
	// Limits are the provider's documented ones, or what a server takes by default.
	Limits Limits
	// Kinds: the API itself tells documents from queries.
	Kinds bool
	// Cuts are the ways of shortening a text that the server knows itself.
	Cuts []Truncate
	// Keyed: the provider answers nobody without a key.
	Keyed bool
	// Signed: requests are signed with credentials of AWS where there is no key.
	Signed bool
	// Sparse: vectors are pairs (embed.Pairs), and how wide they are is not to be seen from them.
	Sparse bool
	// Reranks: it gives scores for a query and texts, and no vectors.
	Reranks bool
	// InfoPath is where the server tells what it runs; "": nowhere.
	InfoPath string

	body   func(Request) any
	decode func(body []byte) (Answer, error)
}

// All are the dialects, by name.
func All() []*Dialect {
	return []*Dialect{
		&bedrockCohere, &bedrockTitan, &cohere, &cohereRerank, &gemini, &jinaRerank, &ollama, &openAI, &tei, &teiRerank,
		&teiSparse, &voyage, &voyageRerank,
	}
}

// Named returns the dialect of a name.
func Named(name string) (*Dialect, error) {
	var names []string
	for _, d := range All() {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return nil, fmt.Errorf("there is no dialect %q: one of %s", name, strings.Join(names, ", "))
}

// PathOf is where a model answers, below the URL.
func (d *Dialect) PathOf(model string) string { return strings.ReplaceAll(d.Path, "{model}", model) }

// CutsItself reports whether the server shortens texts in this way.
func (d *Dialect) CutsItself(how Truncate) bool { return slices.Contains(d.Cuts, how) }

// Body is what is sent: something that encoding/json writes.
func (d *Dialect) Body(r Request) any { return d.body(r) }

// Decode reads an answer to so many texts. What it returns as an error holds nothing of the answer.
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

// indexed is a vector with its place in the request.
type indexed struct {
	Index     *place `json:"index"`
	Embedding Vector `json:"embedding"`
}

// inOrder puts vectors in the order of the texts. Servers that give no index at all answer in order.
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
			return nil, fmt.Errorf("the indexes are not those of %d texts, each once", len(data))
		}
		vectors[at], seen[at] = d.Embedding, true
	}
	return vectors, nil
}

// Texts are the fields that hold the texts, in any of the dialects.
var Texts = []string{"input", "inputs", "texts", "requests", "query", "documents", "instances", "inputText"}

// request is what is sent, by the names of its fields.
type request map[string]any

// with sets a field.
func (b request) with(name string, value any) request {
	b[name] = value
	return b
}

// wide asks for a width; 0 is the model's own, and is not asked for.
func (b request) wide(name string, dims int) request {
	if dims > 0 {
		b[name] = dims
	}
	return b
}

// cutTEI says how TEI cuts long texts.
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

// Merge puts fields into others: an object into the object of its name, all else in place of what is there. A field
// that is null stays null, to take one away that comes before it.
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

// Write is a request as JSON, with a user's fields in it; null takes a field away.
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
