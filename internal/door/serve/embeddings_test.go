package serve_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

func TestEmbeddings_InBothForms(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	type body struct {
		Object, Model string
		Data          []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	for _, format := range []string{"", "float", "base64"} {
		for _, kind := range []string{"", "document", "query"} {
			a := s.do("POST", "/v1/embeddings",
				fmt.Sprintf(`{"input": ["one two", "three"], "model": "toy", "encoding_format": %q, "input_type": %q, "user": "x"}`,
					format, kind))
			var got body
			if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK {
				t.Fatalf("%d %s: %v", a.status, a.body, err)
			}
			if got.Object != "list" || got.Model != "toy" || len(got.Data) != 2 || got.Usage.Prompt != 3 ||
				got.Usage.Total != 3 {
				t.Errorf("%s", a.body)
			}
			word := kind
			if word == "" {
				word = "document"
			}
			for i, text := range []string{"one two", "three"} {
				want := vector.Of(word+" "+text, dims)
				var have []float32
				if format == "base64" {
					have = unpacked(t, got.Data[i].Embedding)
				} else if err := json.Unmarshal(got.Data[i].Embedding, &have); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(have) != fmt.Sprint(want) || got.Data[i].Index != i || got.Data[i].Object != "embedding" {
					t.Errorf("%s %s: text %d is %v, want %v", format, kind, i, have, want)
				}
			}
		}
	}
	if a := s.do("POST", "/v1/embeddings", `{"input": "long text", "dimensions": 4}`); a.status != http.StatusOK ||
		a.header.Get("X-Embedsidecar-Truncated") != "1" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
}

func unpacked(t *testing.T, raw json.RawMessage) []float32 {
	t.Helper()
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != 4*dims {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	v := make([]float32, dims)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

const (
	embeddings = "/v1/embeddings"
	rows       = "/v1/pipelines/public.docs/"
)

// wrongRequests are answered with a status and a code. The limits are 2,000 bytes per body, 3 inputs, and 100 bytes per
// text.
var wrongRequests = []struct {
	method, path, body string
	status             int
	code               string
}{
	{"POST", embeddings, `{"input": [1, 2]}`, 400, "tokens_not_supported"},
	{"POST", embeddings, `{"input": [[1, 2], [3]]}`, 400, "tokens_not_supported"},
	{"POST", embeddings, `{"input": {"text": "x"}}`, 400, "type"},
	{"POST", embeddings, `{"input": ["x", null]}`, 400, "type"},
	{"POST", embeddings, `{"input": 7}`, 400, "type"},
	{"POST", embeddings, `{"input": []}`, 400, "empty"},
	{"POST", embeddings, `{"input": ""}`, 400, "empty"},
	{"POST", embeddings, `{"input": "none"}`, 400, "empty"},
	{"POST", embeddings, `{}`, 400, "missing"},
	{"POST", embeddings, `{"input": ["a","b","c","d"]}`, 400, "too_many_inputs"},
	{"POST", embeddings, `{"input": "` + strings.Repeat("x", 101) + `"}`, 400, "too_long"},
	{"POST", embeddings, `{"input": "` + strings.Repeat("x", 3000) + `"}`, 413, "too_large"},
	{"POST", embeddings, `{"input": "x", "model": "gpt"}`, 404, "model_not_found"},
	{"POST", embeddings, `{"input": "x", "model": 7}`, 400, "type"},
	{"POST", embeddings, `{"input": "x", "dimensions": 2}`, 400, "invalid_value"},
	{"POST", embeddings, `{"input": "x", "encoding_format": "hex"}`, 400, "invalid_value"},
	{"POST", embeddings, `{"input": "x", "input_type": "poem"}`, 400, "invalid_value"},
	{"POST", embeddings, `{"input": "x"} {}`, 400, "json"},
	{"POST", embeddings, `{"input": "x"`, 400, "json"},
	{"POST", embeddings, `nonsense`, 400, "json"},
	{"POST", embeddings, `[]`, 400, "type"},
	{"POST", embeddings, "{\"input\": \"caf\xe9\"}", 400, "utf8"},
	{"POST", rows + "search", "{\"text\": \"caf\xe9\"}", 400, "utf8"},
	{"GET", rows + "search?text=x", ``, 405, "method"}, // GET must not run a model
	{"GET", rows + "similar?key=1", ``, 405, "method"},
	{"POST", embeddings, `{"input": "refused"}`, 400, "refused"},
	{"POST", embeddings, `{"input": "down"}`, 503, "unavailable"},
	{"POST", embeddings, `{"input": "broken"}`, 500, "checksum"},
	{"POST", embeddings, `{"input": "panic"}`, 500, "internal"},
	{"GET", embeddings, ``, 405, "method"},
	{"GET", "/", ``, 404, "unknown_url"},
	{"GET", "/v1/models/none", ``, 404, "model_not_found"},
	{"POST", rows + "search", `{"text": "x"}`, 503, "unavailable"},
	{"POST", rows + "search", `{}`, 400, "missing"},
	{"POST", rows + "search", `{"text": "x", "k": 0}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x", "k": 1001}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x", "language": "english"}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x\u0000"}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x", "filter": {"a": {"b": 1}}}`, 400, "json"},
	{"POST", rows + "search", `{"text": "x", "filter": {"a": ["b", "\u0000"]}}`, 400, "invalid_value"},
	{"POST", rows + "similar", `{}`, 400, "missing"},
	{"POST", rows + "similar", `{"key": "1", "text": "x"}`, 400, "invalid_value"},
	{"POST", rows + "similar", `{"key": {"id": 1}}`, 400, "type"},
	{"POST", rows + "similar", `{"key": [1]}`, 400, "type"},
	{"POST", rows + "similar", `{"key": true}`, 400, "type"},
	{"POST", rows + "search", `{"text": "x", "filters": {"tenant": 7}}`, 400, "unknown_parameter"},
	{"POST", "/v1/pipelines/none/search", `{"text": "x"}`, 404, "pipeline_not_found"},
}

func TestRequests_ThatAreWrong(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits, o.Inputs, o.TextBytes = gate.Limits{Body: 2000}, 3, 100 })
	for _, c := range wrongRequests {
		a := s.do(c.method, c.path, c.body)
		code, message := a.problem(t)
		if a.status != c.status || code != c.code {
			t.Errorf("%s %s %.60s: %d %s (%s), want %d %s", c.method, c.path, c.body, a.status, code, message, c.status, c.code)
		}
		if code == "method" && !strings.Contains(message, "takes POST") {
			t.Errorf("%s %s: %s", c.method, c.path, message)
		}
		if strings.Contains(string(a.body), "secret detail") {
			t.Errorf("%s %.60s tells a client too much: %s", c.path, c.body, a.body)
		}
		if c.code == "unavailable" && a.header.Get("Retry-After") == "" {
			t.Errorf("%s %.60s: no Retry-After", c.path, c.body)
		}
	}
	if a := s.do("POST", embeddings, `{"input":"x"}`, "Content-Type",
		"text/plain"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a body of another type: %d %s", a.status, a.body)
	}
	if a := s.do("POST", embeddings, "\x1f\x8b\x08", "Content-Encoding",
		"gzip"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a compressed body: %d %s", a.status, a.body)
	}
	if a := s.do("POST", embeddings, `{"input":"x"}`, "Origin", "https://elsewhere.example", "Sec-Fetch-Site",
		"cross-site"); a.status != http.StatusForbidden {
		t.Errorf("a page from elsewhere asks: %d %s", a.status, a.body)
	}
	for _, site := range []string{"cross-site", "same-site"} { // another port of this machine is the same site
		if a := s.do("GET", "/v1/models/toy", "", "Sec-Fetch-Site", site); a.status != http.StatusForbidden {
			t.Errorf("an image in a page from elsewhere, %s: %d %s", site, a.status, a.body)
		}
	}
	if a := s.do("GET", "/v1/models/toy", "", "Origin", "https://elsewhere.example"); a.status != http.StatusForbidden {
		t.Errorf("a page from elsewhere in an old browser: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models", "", "Host", "elsewhere.example"); a.status != http.StatusForbidden {
		t.Errorf("another name for this address: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models", "", "X-Request-Id", "mine-7"); a.header.Get("X-Request-Id") != "mine-7" {
		t.Errorf("request id %q", a.header.Get("X-Request-Id"))
	}
	if a := s.do("GET", "/v1/models/other/toy", ""); a.status != http.StatusOK ||
		!bytes.Contains(a.body, []byte(`"dims":4`)) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestEmbeddings_ASparseModelHasNone(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.model.sparse = true
	a := s.do("POST", "/v1/embeddings", `{"input": "x"}`)
	if code, message := a.problem(t); a.status != 400 || code != "sparse_model" || !strings.Contains(message,
		"/v1/pipelines/NAME/search") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models/toy", ""); !bytes.Contains(a.body, []byte(`"sparse":true`)) {
		t.Errorf("%s", a.body)
	}
}
