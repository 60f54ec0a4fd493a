package serve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestRerank_AnswersAsTEI: best first, each score with the index of its text.
func TestRerank_AnswersAsTEI(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	a := s.do("POST", "/rerank", `{"query": "q", "texts": ["three", "a", "longest"], "truncate": true, "raw_scores": false,
		"return_text": true, "truncation_direction": "Right"}`)
	var got []struct {
		Index int
		Text  string
		Score float64
	}
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK || len(got) != 3 {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if got[0].Index != 2 || got[0].Text != "longest" || got[0].Score != 7 || got[1].Index != 0 || got[2].Index != 1 {
		t.Errorf("%s", a.body)
	}
	if a := s.do("POST", "/rerank", `{"query": "q", "texts": ["a"], "model": "lengths"}`); a.status != http.StatusOK ||
		strings.Contains(string(a.body), "text") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for body, code := range map[string]string{
		`{"texts": ["a"]}`:                                                    "missing",
		`{"query": "q", "texts": []}`:                                         "invalid_value",
		`{"query": "q", "texts": ["a"], "raw_scores": true}`:                  "invalid_value",
		`{"query": "q", "texts": ["a"], "top_n": 3}`:                          "unknown_parameter",
		`{"query": "q", "texts": ["a` + strings.Repeat(`", "b`, 1000) + `"]}`: "invalid_value",
		`{"query": "q", "texts": [1]}`:                                        "type",
	} {
		a := s.do("POST", "/rerank", body)
		if got, _ := a.problem(t); a.status != http.StatusBadRequest || got != code {
			t.Errorf("%.60s: %d %s, want %s", body, a.status, a.body, code)
		}
	}
	if a := s.do("POST", "/rerank", `{"query": "q", "texts": ["a"], "model": "other"}`); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}
