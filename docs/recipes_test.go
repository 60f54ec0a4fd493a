package docs

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestRecipes_N8N sends the request that the node of recipes.md is set to send.
func TestRecipes_N8N(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	url, token := r.serving()
	var flow struct {
		Nodes []struct {
			Parameters struct{ Method, URL, JSONBody string }
		}
	}
	if err := json.Unmarshal([]byte(r.only("recipes.md", "json", `{"nodes"`)), &flow); err != nil || len(flow.Nodes) != 1 {
		t.Fatalf("%v: %v", flow, err)
	}
	p := flow.Nodes[0].Parameters
	// what n8n makes of the expression with {"query": "reset"}
	body := map[string]string{"={{ JSON.stringify({ text: $json.query, k: 5 }) }}": `{"text":"reset","k":5}`}[p.JSONBody]
	r.has(r.answers(http.StatusOK, p.Method, strings.Replace(p.URL, "http://127.0.0.1:7470", url, 1), token, body), `"key":`)
}

// serving embeds the rows and answers queries.
func (r *reader) serving() (url, token string) {
	r.t.Helper()
	const flags = " --table public.docs --columns title,body --into-table docs_embedding"
	token = strings.TrimSpace(r.sh("embedsidecar token create app --tokens-file tokens"))
	r.sh("embedsidecar run --once" + flags)
	listens, _ := r.start("embedsidecar run --http 127.0.0.1:0 --tokens-file tokens"+flags, "queries are answered", "address")
	return "http://" + listens, token
}
