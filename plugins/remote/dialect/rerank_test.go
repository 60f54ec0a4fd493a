package dialect

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestRerank_Requests pins the requests, which were checked by hand against the providers' documentation.
func TestRerank_Requests(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"cohere-rerank": `{"model":"m","query":"q","documents":["one","two"]}`,
		"jina-rerank":   `{"model":"m","query":"q","documents":["one","two"],"return_documents":false}`,
		"voyage-rerank": `{"model":"m","query":"q","documents":["one","two"],"return_documents":false,"truncation":true}`,
		"tei-rerank":    `{"query":"q","texts":["one","two"],"raw_scores":false,"return_text":false,"truncate":true,"truncation_direction":"Right"}`,
	} {
		d, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(d.Body(Request{Model: "m", Asked: "q", Texts: []string{"one", "two"}, Truncate: CutEnd}))
		if want = sorted(t, want); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

// TestRerank_Answers reads answers from the providers' documentation, and refuses wrong indexes.
func TestRerank_Answers(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]string{
		"cohere-rerank": `{"results":LIST,"id":"07734bd2","meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`,
		"jina-rerank":   `{"model":"jina-reranker-v2-base-multilingual","usage":{"total_tokens":815},"results":LIST}`,
		"voyage-rerank": `{"object":"list","data":LIST,"model":"rerank-2.5","usage":{"total_tokens":26}}`,
		"tei-rerank":    `LIST`,
	} {
		d, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		score := "relevance_score"
		if name == "tei-rerank" {
			score = "score"
		}
		read := func(list string) (Answer, error) {
			return d.Decode([]byte(strings.Replace(form, "LIST", strings.ReplaceAll(list, "S:", `"`+score+`":`), 1)), 2)
		}
		got, err := read(`[{"index":1,S:0.75},{"index":0,S:-0.5,"text":"x"}]`)
		if err != nil || !slices.Equal(got.Vectors[0], Vector{-0.5}) || !slices.Equal(got.Vectors[1], Vector{0.75}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for _, wrong := range []string{
			`[{"index":1,S:0.75},{"index":1,S:0.5}]`, `[{"index":2,S:0.75},{"index":0,S:0.5}]`,
			`[{"index":-1,S:0.75},{"index":0,S:0.5}]`, `[{"index":0.5,S:0.75},{"index":0,S:0.5}]`,
			`[{S:0.75},{S:0.5}]`, `[{"index":1},{"index":0,S:0.5}]`, `[{"index":1,S:null},{"index":0,S:0.5}]`,
			`[{"index":0,S:0.5}]`, `[{"index":0,S:0.5},{"index":1,S:0.5},{"index":2,S:0.5}]`, `[]`, `null`, `{}`, `"x"`,
			`[{"index":1,S:1e999},{"index":0,S:0.5}]`,
		} {
			if got, err := read(wrong); err == nil {
				t.Errorf("%s: %s is read as %v", name, wrong, got)
			}
		}
	}
}
