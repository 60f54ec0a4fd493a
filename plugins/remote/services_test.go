package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/remote/client"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// A service describes a provider's API as its documentation does. It was written by hand, not from the client.
type service struct {
	path   string
	header string // header of the key; "": none
	may    string // further fields that it accepts
	must   string // required fields of documents and queries, as JSON
	query  string // fields that differ in a query, as JSON
}

const bearer = "Authorization"

var services = map[string]service{
	"openai":         {"/v1/embeddings", bearer, "encoding_format user", `{"dimensions":512}`, ""},
	"azure":          {"/openai/v1/embeddings", "Api-Key", "encoding_format dimensions user", "", ""},
	"mistral":        {"/v1/embeddings", bearer, "output_dtype metadata", `{"output_dimension":512,"encoding_format":"float"}`, ""},
	"voyage":         {"/v1/embeddings", bearer, "truncation output_dtype encoding_format", `{"input_type":"document","output_dimension":512}`, `{"input_type":"query"}`},
	"cohere":         {"/v2/embed", bearer, "truncate max_tokens", `{"input_type":"search_document","embedding_types":["float"],"output_dimension":512}`, `{"input_type":"search_query"}`},
	"bedrock":        {"/model/amazon.titan-embed-text-v2%3A0/invoke", bearer, "normalize embeddingTypes", `{"dimensions":512}`, ""},
	"bedrock-cohere": {"/model/cohere.embed-v4%3A0/invoke", bearer, "max_tokens", `{"input_type":"search_document","embedding_types":["float"],"truncate":"RIGHT","output_dimension":512}`, `{"input_type":"search_query"}`},
	"gemini":         {"/v1beta/models/gemini-embedding-001:batchEmbedContents", "X-Goog-Api-Key", "", "", ""},
	"jina":           {"/v1/embeddings", bearer, "normalized late_chunking truncate embedding_type", `{"task":"retrieval.passage","dimensions":512}`, `{"task":"retrieval.query"}`},
	"nvidia":         {"/v1/embeddings", bearer, "user dimensions modality", `{"input_type":"passage","truncate":"END","encoding_format":"float"}`, `{"input_type":"query"}`},
	"cloudflare":     {"/client/v4/accounts/ACCOUNT/ai/v1/embeddings", bearer, "", "", ""},
	"together":       {"/v1/embeddings", bearer, "", "", ""},
	"fireworks":      {"/inference/v1/embeddings", bearer, "prompt_template return_logits normalize", `{"dimensions":256}`, ""},
	"deepinfra":      {"/v1/openai/embeddings", bearer, "dimensions service_tier", `{"encoding_format":"float"}`, ""},
	"nebius":         {"/v1/embeddings", bearer, "dimensions user service_tier", `{"encoding_format":"float"}`, ""},
	"openrouter":     {"/api/v1/embeddings", bearer, "dimensions user provider input_type", `{"encoding_format":"float"}`, ""},
	"dashscope":      {"/compatible-mode/v1/embeddings", bearer, "", `{"encoding_format":"float","dimensions":512}`, ""},
	"siliconflow":    {"/v1/embeddings", bearer, "dimensions", `{"encoding_format":"float"}`, ""},
	"scaleway":       {"/v1/embeddings", bearer, "", "", ""},
	"databricks":     {"/serving-endpoints/embeddings", bearer, "instruction", "", ""},
	"endpoint":       {"/embed", bearer, "truncate truncation_direction normalize prompt_name dimensions", "", ""},
	"tei":            {"/embed", "", "truncate truncation_direction normalize prompt_name dimensions", "", ""},
	"ollama":         {"/api/embed", "", "truncate keep_alive dimensions", `{"options":{"num_ctx":8192}}`, ""},
	"vllm":           {"/v1/embeddings", "", "encoding_format user truncate_prompt_tokens additional_data priority", "", ""},
	"llamacpp":       {"/v1/embeddings", "", "", `{"encoding_format":"float"}`, ""},
	"lmstudio":       {"/v1/embeddings", "", "", "", ""},
	"litellm":        {"/embeddings", "", "dimensions user timeout", `{"encoding_format":"float"}`, ""},
}

// rerankers are services that score texts.
var rerankers = map[string]service{
	"cohere-rerank": {"/v2/rerank", bearer, "top_n max_tokens_per_doc priority", "", ""},
	"jina-rerank":   {"/v1/rerank", bearer, "top_n return_documents", "", ""},
	"voyage-rerank": {"/v1/rerank", bearer, "top_k return_documents truncation", "", ""},
	"tei-rerank":    {"/rerank", "", "raw_scores return_text truncate truncation_direction", "", ""},
	"vllm-rerank":   {"/v1/rerank", "", "top_n return_documents truncate_prompt_tokens", "", ""},
}

// scores gives the last text the best score, in the form of the service.
func (s *service) scores(body map[string]any) any {
	texts, name := s.texts(body), "relevance_score"
	if s.path == "/rerank" {
		name = "score"
	}
	var rows []any
	for i := range slices.Backward(texts) {
		rows = append(rows, map[string]any{"index": i, name: float64(i)})
	}
	switch {
	case s.path == "/rerank":
		return rows
	case slices.Contains(strings.Fields(s.may), "top_k"):
		return map[string]any{"object": "list", "data": rows, "usage": map[string]any{"total_tokens": 9}}
	}
	return map[string]any{"results": rows}
}

// texts returns the texts of a request.
func (s *service) texts(body map[string]any) (texts []any) {
	for _, name := range []string{"input", "inputs", "texts", "documents"} {
		if list, is := body[name].([]any); is {
			return list
		}
	}
	if text, is := body["inputText"]; is {
		return []any{text}
	}
	list, _ := body["requests"].([]any)
	return list
}

// wrong returns the service's objection to a request.
func (s *service) wrong(r *http.Request, query bool) (body map[string]any, err error) {
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		return nil, err
	}
	if r.URL.EscapedPath() != s.path {
		return nil, fmt.Errorf("the path is %s", r.URL.EscapedPath())
	}
	if strings.Contains(s.path, "/invoke") {
		if got, want := r.Header.Get(bearer), signature(r, data); got != want {
			return nil, fmt.Errorf("the signature is %s, want %s", got, want)
		}
		r.Header.Set(bearer, "sk-key")
	}
	key := strings.TrimPrefix(r.Header.Get(s.header), "Bearer ")
	if s.header != "" && key != "sk-key" || s.header == "" && r.Header.Get(bearer) != "" {
		return nil, fmt.Errorf("the key in %s is %q", s.header, key)
	}
	want := map[string]any{}
	for _, part := range []string{s.must, map[bool]string{true: s.query}[query]} {
		if part == "" {
			continue
		}
		if err := json.Unmarshal([]byte(part), &want); err != nil {
			return nil, err
		}
	}
	for name, value := range want {
		if fmt.Sprint(body[name]) != fmt.Sprint(value) {
			return nil, fmt.Errorf("%s is %v, want %v", name, body[name], value)
		}
	}
	known := slices.Concat(
		[]string{"model", "input", "inputs", "texts", "requests", "documents", "query", "inputText"}, strings.Fields(s.may),
		slices.Collect(maps.Keys(want)))
	for name := range body {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s is no field of it", name)
		}
	}
	return body, nil
}

// answer gives each text a vector, in the form of the service.
func (s *service) answer(body map[string]any) any {
	var rows []any
	for range s.texts(body) {
		row := make([]float32, 1024)
		for _, name := range []string{"dimensions", "output_dimension"} {
			if n, is := body[name].(float64); is {
				row = row[:int(n)]
			}
		}
		if strings.HasPrefix(s.path, "/v1beta") {
			row = row[:768]
		}
		row[0] = 1
		rows = append(rows, row)
	}
	switch {
	case s.path == "/embed":
		return rows
	case s.path == "/api/embed":
		return map[string]any{"embeddings": rows}
	case strings.HasPrefix(s.path, "/model/amazon"):
		return map[string]any{"embedding": rows[0], "inputTextTokenCount": 3}
	case s.path == "/v2/embed", strings.HasPrefix(s.path, "/model/cohere"):
		return map[string]any{"embeddings": map[string]any{"float": rows}}
	case strings.HasPrefix(s.path, "/v1beta"):
		for i, row := range rows {
			rows[i] = map[string]any{"values": row}
		}
		return map[string]any{"embeddings": rows}
	}
	for i, row := range rows {
		rows[i] = map[string]any{"object": "embedding", "index": i, "embedding": row}
	}
	return map[string]any{"object": "list", "data": rows}
}

// signature is the signature of a request with the keys of tryService, by AWS's documentation (linked in
// docs/services.md).
func signature(r *http.Request, body []byte) string {
	signed := strings.Split(regexp.MustCompile(`SignedHeaders=([^,]+)`).FindString(r.Header.Get(bearer)), "=")
	at, headers := r.Header.Get("X-Amz-Date"), ""
	for name := range strings.SplitSeq(signed[len(signed)-1], ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers += name + ":" + value + "\n"
	}
	path := strings.ReplaceAll(r.URL.EscapedPath(), "%", "%25")
	canonical := strings.Join([]string{
		r.Method, path, "", headers, signed[len(signed)-1], fmt.Sprintf("%x", sha256.Sum256(body)),
	}, "\n")
	scope := at[:8] + "/eu-west-3/bedrock/aws4_request"
	key := []byte("AWS4wJalrXUtnFEMI/K7MDENG")
	for _, part := range append(strings.Split(scope, "/"), fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", at, scope,
		sha256.Sum256([]byte(canonical)))) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return fmt.Sprintf("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/%s, SignedHeaders=%s, Signature=%x", scope,
		signed[len(signed)-1], key)
}

// TestServices: each entry of docs/services.md loads, and a strict server instead of the service answers it.
func TestServices(t *testing.T) {
	// The credentials for Bedrock's signer.
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
	t.Setenv("AWS_REGION", "eu-west-3")
	for host, region := range map[string]string{
		"bedrock-runtime.eu-west-3.amazonaws.com": "eu-west-3", "bedrock-runtime-fips.us-east-1.amazonaws.com": "us-east-1",
		"vpce-1.bedrock-runtime.us-west-2.vpce.amazonaws.com": "us-west-2",
	} {
		if found := regional.FindStringSubmatch(host); len(found) != 2 || found[1] != region {
			t.Errorf("%s: %q, want %s", host, found, region)
		}
	}
	page, err := os.ReadFile("../../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		dir := t.TempDir()
		file := filepath.Join(dir, "c.yaml")
		text := "plugins: {dir: " + dir + "}\nmodels:\n" + strings.ReplaceAll(block[1], "/run/secrets/key", dir+"/key")
		files := map[string]string{"c.yaml": text, "key": "sk-key\n", "embedsidecar-remote": "#!/bin/sh\n"}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cfg, _, err := config.Load(config.Source{Flags: map[string][]string{"config": {file}}})
		if err != nil {
			t.Fatalf("%s\n%v", block[1], err)
		}
		name := cfg.Models[0].Name
		found, err := cfg.Embedder(config.Finder{}, "", name)
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = true
		t.Run(name, func(t *testing.T) { tryService(t, name, found.Env) })
	}
	if len(seen) != 27+len(rerankers) || len(services) != 27 {
		t.Errorf("%d services are documented and %d tried, want 27 and %d rerankers", len(seen), len(services), len(rerankers))
	}
}

func tryService(t *testing.T, name string, env map[string]string) {
	t.Helper()
	s, err := readSettings(func(key string) string { return env[key] })
	if err != nil {
		t.Fatal(err)
	}
	of, query := services[name], false
	reranker, reranks := rerankers[name]
	if reranks {
		of = reranker
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{"model_id": "m", "model_sha": "1", "max_input_length": 512}
		if r.URL.Path != "/info" {
			body, err := of.wrong(r, query)
			if err != nil {
				t.Error(err)
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if answer = of.answer(body); reranks {
				answer = of.scores(body)
			}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range s.options.URLs {
		u.Scheme, u.Host = at.Scheme, at.Host
	}
	s.options.HTTP = server.Client()
	s.options.Log = slog.New(slog.DiscardHandler)
	c := client.New(s.options)
	about, err := c.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if reranks {
		scores, err := c.Rerank(t.Context(), "a question", []string{"a text", "another"})
		if err != nil || !about.Reranks || len(scores) != 2 || scores[1] <= scores[0] {
			t.Fatalf("%+v: %v, %v", about, scores, err)
		}
		return
	}
	for kind, texts := range [][]string{{"a text", "another"}, {"a question"}} {
		query = sdk.Kind(kind) == sdk.Query
		answers, err := c.Embed(t.Context(), sdk.Kind(kind), texts)
		if err != nil || len(answers) != len(texts) || len(answers[0].Vector) != about.Dims {
			t.Fatalf("%d dims, %v", about.Dims, err)
		}
	}
}
