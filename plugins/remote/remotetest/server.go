// Package remotetest is a server for tests and benchmarks that speaks every dialect of the remote embedder. It refuses
// requests with undocumented fields. It can be made to misbehave.
package remotetest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Server answers at the paths of one dialect. Set the fields before the first request.
type Server struct {
	Dialect string
	Dims    int           // of vectors, if a request sets none
	Key     string        // required key; "": any
	Header  string        // header of the key; "": Authorization
	Slots   int           // requests served at the same time; others wait; 0: no limit
	Service time.Duration // of one request
	Salt    string        // another salt acts as another model

	Batches *Batches // nil: no batch jobs

	// Behave may answer a request itself and return true. nil: never.
	Behave func(w http.ResponseWriter, r *http.Request, c *Call) bool
	// Spoil may change an answer before it is written. nil: never.
	Spoil func(c *Call)

	mu    sync.Mutex
	calls []*Call
	busy  int
	most  int
	once  sync.Once
	slots chan struct{}
}

// Call is one request for vectors.
type Call struct {
	N       int // from 1
	Texts   []string
	Query   bool
	Asked   string // a reranker's query
	Base64  bool
	Dims    int
	Body    []byte // as it came
	Key     string
	Numbers [][]any // the answer: numbers, or what Spoil puts there
	Index   []any   // for the dialects that have one
}

// Calls returns the requests so far.
func (s *Server) Calls() []*Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Call(nil), s.calls...)
}

// Texts counts the requests for each text.
func (s *Server) Texts() map[string]int {
	counts := map[string]int{}
	for _, c := range s.Calls() {
		for _, t := range c.Texts {
			counts[t]++
		}
	}
	return counts
}

// Most is the highest number of concurrent requests.
func (s *Server) Most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Vector is the server's vector for a text: numbers from a hash, normalized.
func (s *Server) Vector(text string, query bool, dims int) []float32 {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s|%t|%s", s.Salt, query, text))
	r := rand.New(rand.NewChaCha8(seed))
	v := make([]float32, dims)
	var sum float64
	for i := range v {
		x := r.NormFloat64()
		v[i] = float32(x)
		sum += x * x
	}
	scale := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= scale
	}
	return v
}

// Sparse is the server's sparse vector for a text: pairs of index and number, sorted by index.
func (s *Server) Sparse(text string) []float32 {
	var pairs []float32
	for i, x := range s.Vector(text, false, s.Dims) {
		if x > 0 {
			pairs = append(pairs, float32(i), x)
		}
	}
	return pairs
}

// Score is the server's score for a query and a text: a number from a hash, between 0 and 1.
func (s *Server) Score(query, text string) float32 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s", s.Salt, query, text))
	return float32(binary.LittleEndian.Uint16(sum[:])) / (1 << 16)
}

// paths are the paths of the dialects.
var paths = map[string]string{
	"openai": "/v1/embeddings", "voyage": "/v1/embeddings", "cohere": "/v2/embed",
	"cohere-rerank": "/v2/rerank", "jina-rerank": "/v1/rerank", "voyage-rerank": "/v1/rerank", "tei-rerank": "/rerank",
	"ollama": "/api/embed", "tei": "/embed", "tei-sparse": "/embed_sparse",
}

// Base is the URL to configure for a server at root.
func (s *Server) Base(root string) string {
	if strings.HasPrefix(paths[s.Dialect], "/v1/") {
		return root + "/v1"
	}
	if s.Dialect == "gemini" {
		return root + "/v1beta"
	}
	return root
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(s.Dialect, "tei") && r.URL.Path == "/info" && r.Method == http.MethodGet {
		s.write(w, http.StatusOK, map[string]any{
			"model_id": "remotetest/" + s.Salt, "model_sha": "0123abcd", "model_dtype": "float32",
			"model_type": map[string]any{"embedding": map[string]any{"pooling": "mean"}}, "max_concurrent_requests": 512,
			"max_input_length": 512, "max_batch_tokens": 16384, "max_client_batch_size": 32, "tokenization_workers": 2,
			"version": "1.8.0",
		})
		return
	}
	if s.serveBatches(w, r) {
		return
	}
	path := paths[s.Dialect]
	if s.Dialect == "gemini" { // its model is in the path
		path = r.URL.Path
		if !strings.HasPrefix(path, "/v1beta/models/") || !strings.HasSuffix(path, ":batchEmbedContents") {
			path = ""
		}
	}
	if strings.HasPrefix(s.Dialect, "bedrock") && strings.HasPrefix(r.URL.Path, "/model/") &&
		strings.HasSuffix(r.URL.Path, "/invoke") {
		path = r.URL.Path
	}
	if r.URL.Path != path || r.Method != http.MethodPost {
		s.Fail(w, http.StatusNotFound, "not_found", "there is nothing at this path")
		return
	}
	c, err := s.read(r)
	if err != nil {
		s.Fail(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	c.N = len(s.calls)
	s.busy++
	s.most = max(s.most, s.busy)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}()
	if s.Behave != nil && s.Behave(w, r, c) {
		return
	}
	if s.Key != "" && c.Key != s.Key {
		s.Fail(w, http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided: "+c.Key)
		return
	}
	if !s.serve(r) {
		return
	}
	dims := cmp.Or(c.Dims, s.Dims)
	for i, text := range c.Texts {
		v := s.Vector(text, c.Query, dims)
		if s.Dialect == "tei-sparse" {
			v = s.Sparse(text)
		}
		if strings.HasSuffix(s.Dialect, "-rerank") {
			v = []float32{s.Score(c.Asked, text)}
		}
		numbers := lists.Map(v, func(x float32) any { return x })
		c.Numbers, c.Index = append(c.Numbers, numbers), append(c.Index, i)
	}
	if s.Spoil != nil {
		s.Spoil(c)
	}
	s.write(w, http.StatusOK, s.answer(c))
}

// serve takes a slot for the service time. It returns false if the client has gone.
func (s *Server) serve(r *http.Request) bool {
	if s.Slots > 0 {
		s.once.Do(func() { s.slots = make(chan struct{}, s.Slots) })
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-r.Context().Done():
			return false
		}
	}
	if s.Service > 0 {
		select {
		case <-time.After(s.Service):
		case <-r.Context().Done():
			return false
		}
	}
	return true
}

// answer is the body of a good answer.
func (s *Server) answer(c *Call) any {
	tokens := 0
	for _, t := range c.Texts {
		tokens += len(strings.Fields(t)) + 2
	}
	rows := make([]any, len(c.Numbers))
	for i, numbers := range c.Numbers {
		rows[i] = numbers
		if c.Base64 {
			if packed, ok := pack(numbers); ok {
				rows[i] = packed
			}
		}
	}
	switch s.Dialect {
	case "cohere-rerank", "jina-rerank", "voyage-rerank", "tei-rerank":
		return s.ranked(c, tokens)
	case "openai", "voyage":
		data := make([]map[string]any, len(rows))
		for i, row := range rows {
			data[i] = map[string]any{"object": "embedding", "embedding": row}
			if c.Index[i] != nil {
				data[i]["index"] = c.Index[i]
			}
		}
		usage := map[string]any{"total_tokens": tokens}
		if s.Dialect == "openai" {
			usage["prompt_tokens"] = tokens
		}
		return map[string]any{"object": "list", "data": data, "model": "m", "usage": usage}
	case "bedrock-titan":
		if len(rows) != 1 {
			return map[string]any{"embedding": nil}
		}
		return map[string]any{
			"embedding": rows[0], "embeddingsByType": map[string]any{"float": rows[0]}, "inputTextTokenCount": tokens,
		}
	case "bedrock-cohere":
		return map[string]any{
			"id": "5807ee2e-0cda-445a-9ec8-864c60a06606", "texts": c.Texts, "embeddings": map[string]any{"float": rows},
			"response_type": "embeddings_by_type",
		}
	case "cohere":
		return map[string]any{
			"id": "5807ee2e-0cda-445a-9ec8-864c60a06606", "texts": c.Texts, "embeddings": map[string]any{"float": rows},
			"meta": map[string]any{
				"api_version":  map[string]any{"version": "2"},
				"billed_units": map[string]any{"input_tokens": tokens},
			},
		}
	case "gemini":
		list := lists.Map(rows, func(row any) map[string]any { return map[string]any{"values": row} })
		return map[string]any{"embeddings": list}
	case "ollama":
		return map[string]any{
			"model": "m", "embeddings": rows, "total_duration": 14143917, "load_duration": 1019500,
			"prompt_eval_count": tokens,
		}
	}
	if s.Dialect == "tei-sparse" {
		for i, numbers := range c.Numbers {
			rows[i] = sparseRow(numbers)
		}
	}
	return rows
}

// ranked is the answer of a reranker: best first, each score with the index of its text.
func (s *Server) ranked(c *Call, tokens int) any {
	name := "relevance_score"
	if s.Dialect == "tei-rerank" {
		name = "score"
	}
	results := []map[string]any{}
	for i, numbers := range c.Numbers {
		one := map[string]any{name: numbers[0]}
		if c.Index[i] != nil {
			one["index"] = c.Index[i]
		}
		results = append(results, one)
	}
	slices.SortStableFunc(results, func(a, b map[string]any) int {
		x, _ := a[name].(float32)
		y, _ := b[name].(float32)
		return cmp.Compare(y, x)
	})
	switch s.Dialect {
	case "cohere-rerank":
		return map[string]any{
			"id": "07734bd2-2473-4f07-94e1-0d9f0e6843cf", "results": results,
			"meta": map[string]any{
				"api_version":  map[string]any{"version": "2"},
				"billed_units": map[string]any{"search_units": 1},
			},
		}
	case "jina-rerank":
		return map[string]any{
			"model": "m", "object": "list", "usage": map[string]any{"total_tokens": tokens}, "results": results,
		}
	case "voyage-rerank":
		return map[string]any{
			"object": "list", "data": results, "model": "m", "usage": map[string]any{"total_tokens": tokens},
		}
	}
	return results
}

// sparseRow writes pairs of index and number in reverse order, because the dialect promises no order.
func sparseRow(pairs []any) []map[string]any {
	row := []map[string]any{}
	for i := len(pairs) - 2; i >= 0; i -= 2 {
		row = append(row, map[string]any{"index": pairs[i], "value": pairs[i+1]})
	}
	return row
}

// pack writes numbers as base64. It returns false if some are not numbers.
func pack(numbers []any) (string, bool) {
	var raw []byte
	for _, n := range numbers {
		x, ok := n.(float32)
		if !ok {
			return "", false
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw), true
}

// Fail writes an error in the form of the dialect.
func (s *Server) Fail(w http.ResponseWriter, status int, code, message string) {
	var body any
	switch s.Dialect {
	case "openai":
		body = map[string]any{"error": map[string]any{"message": message, "type": code, "param": nil, "code": code}}
	case "gemini":
		body = map[string]any{"error": map[string]any{"code": status, "message": message, "status": code}}
	case "voyage", "voyage-rerank", "jina-rerank":
		body = map[string]any{"detail": message}
	case "bedrock-titan", "bedrock-cohere":
		w.Header().Set("X-Amzn-Errortype", code)
		body = map[string]any{"message": message}
	case "cohere", "cohere-rerank":
		body = map[string]any{"id": "0", "message": message}
	case "ollama":
		body = map[string]any{"error": message}
	default:
		body = map[string]any{"error": message, "error_type": code}
	}
	s.write(w, status, body)
}

func (s *Server) write(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may have gone
}
