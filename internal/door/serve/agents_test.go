package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// bearer adds a token to each request.
type bearer string

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b != "" {
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return client.Transport.RoundTrip(r)
}

// agent is a session of the official client.
func (s *server) agent(token string) (*mcp.ClientSession, error) {
	s.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(s.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)}, DisableStandaloneSSE: true,
	}, nil)
	if err == nil {
		s.t.Cleanup(func() { _ = session.Close() })
	}
	return session, err
}

// called returns the answer of a tool.
func called(t *testing.T, session *mcp.ClientSession, tool string, arguments any) (text string, failed bool) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, arguments, err)
	}
	for _, c := range result.Content {
		if of, ok := c.(*mcp.TextContent); ok {
			text += of.Text
		}
	}
	return text, result.IsError
}

// TestAgents_AreToldWhatIsWrong: tools are listed as read-only, and invalid arguments are rejected with a message.
func TestAgents_AreToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	session, err := s.agent("")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		if !tool.Annotations.ReadOnlyHint || tool.Description == "" {
			t.Errorf("%s: %+v", tool.Name, tool.Annotations)
		}
		takes, _ := tool.InputSchema.(map[string]any)
		properties, _ := takes["properties"].(map[string]any)
		for name, schema := range properties {
			if about, _ := schema.(map[string]any); about["description"] == nil {
				t.Errorf("%s: %s: %v, want what it means", tool.Name, name, schema)
			}
		}
	}
	slices.Sort(names)
	if want := []string{"explain", "list_pipelines", "search", "similar"}; !slices.Equal(names, want) {
		t.Errorf("tools %q, want %q", names, want)
	}
	if text, failed := called(t, session, "list_pipelines", nil); failed || !strings.Contains(text, `"public.docs"`) {
		t.Errorf("pipelines: %s", text)
	}
	const pipeline = `"pipeline": "public.docs"`
	for _, c := range []struct{ tool, arguments, word string }{
		{"search", `{}`, "text is missing"},
		{"search", `{"pipeline": "docs"}`, "text is missing"},
		{"search", `{"pipeline": "nosuch", "text": "x"}`, "no pipeline"},
		{"search", `{` + pipeline + `, "text": "x"}`, "its table is gone"},
		{"search", `{` + pipeline + `, "text": "x", "sql": "DROP TABLE docs"}`, "sql is no parameter"},
		{"search", `{` + pipeline + `, "text": "x", "key": 1}`, "key is no parameter"},
		{"search", `{` + pipeline + `, "text": ["x"]}`, "a string"},
		{"search", `{` + pipeline + `, "text": " "}`, "text is missing"},
		{"search", `{` + pipeline + `, "text": "x\u0000"}`, "NUL"},
		{"search", `{` + pipeline + `, "text": "x", "k": 0}`, "k: expected"},
		{"search", `{` + pipeline + `, "text": "x", "k": 1e99}`, "k"},
		{"search", `{` + pipeline + `, "text": "x", "filter": {"a": {"$where": "1"}}}`, "no operator"},
		{"search", `{` + pipeline + `, "text": "x", "filter": "a = 1"}`, "an object"},
		{"search", `{` + pipeline + `, "text": "` + strings.Repeat("x", 1<<20+1) + `"}`, "bytes"},
		{"similar", `{` + pipeline + `}`, "key is missing"},
		{"similar", `{` + pipeline + `, "key": {}}`, "a string or a number"},
		{"explain", `{` + pipeline + `, "key": 1, "text": true}`, "text is no parameter"},
		{"list_pipelines", `{"pipeline": "x"}`, "no parameter"},
	} {
		text, failed := called(t, session, c.tool, json.RawMessage(c.arguments))
		if !failed || !strings.Contains(text, c.word) || strings.Contains(text, "RowsRequest") { // an internal name
			t.Errorf("%s %.100s: %q, want an error with %q", c.tool, c.arguments, text, c.word)
		}
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "drop_table"}); err == nil {
		t.Error("a tool that there is not answers")
	}
}

// TestAgents_ShowAToken: requests without a token are rejected, and an embed token has no tools.
func TestAgents_ShowAToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	tokens := map[string]string{}
	for name, grant := range map[string]gate.Grant{
		"searches": {Role: gate.RoleQuery}, "elsewhere": {Role: gate.RoleQuery, Pipelines: []string{"other"}},
		"embeds": {Role: gate.RoleEmbed},
	} {
		token, _, err := gate.CreateToken(file, name, grant)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
	}
	read, err := gate.ReadTokens(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *serve.Options) { o.Tokens = read })
	if _, err := s.agent(""); err == nil {
		t.Error("somebody without a token is answered")
	}
	for name, token := range tokens {
		session, err := s.agent(token)
		if name == "embeds" {
			if err == nil {
				t.Error("who may only embed is answered")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := called(t, session, "list_pipelines", nil)
		if sees := strings.Contains(text, "public.docs"); sees != (name == "searches") {
			t.Errorf("%s sees %s", name, text)
		}
		for _, tool := range []string{"search", "similar", "explain"} {
			arguments := map[string]any{"pipeline": "public.docs", "key": "1"}
			if tool == "search" {
				arguments = map[string]any{"pipeline": "docs", "text": "x"}
			}
			text, failed := called(t, session, tool, arguments)
			if hidden := strings.Contains(text, "no pipeline"); !failed || hidden != (name == "elsewhere") {
				t.Errorf("%s: %s: %s", name, tool, text)
			}
		}
	}
}

// TestTrust_AnAgentsRequestIsOneMessage: a batch of calls would bypass the limit of one token.
func TestTrust_AnAgentsRequestIsOneMessage(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	call := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "list_pipelines"}}`, id)
	}
	for body, want := range map[string]int{
		call(1): http.StatusOK, " \r\n\t" + call(1): http.StatusOK,
		"[" + call(1) + "]":                                    http.StatusBadRequest,
		" \r\n\t[" + call(1) + ", " + call(2) + "]":            http.StatusBadRequest,
		"[" + strings.Repeat(call(1)+",", 500) + call(2) + "]": http.StatusBadRequest,
		"": http.StatusBadRequest, " ": http.StatusBadRequest,
	} {
		a := s.do(http.MethodPost, "/mcp", body, "Accept", "application/json, text/event-stream", "Content-Type",
			"application/json")
		if a.status != want || strings.Contains(string(a.body), "public.docs") != (want == http.StatusOK) {
			t.Errorf("%.60q: %d %.300s, want %d", body, a.status, a.body, want)
		}
	}
}

// talk serves an agent over a pair of streams; done receives the result.
func talk(t *testing.T, o serve.Options) (answers *io.PipeReader, ours *io.PipeWriter, done chan error) {
	t.Helper()
	in, ours := io.Pipe()
	answers, out := io.Pipe()
	done = make(chan error, 1)
	go func() { done <- serve.Talk(t.Context(), o, in, out) }()
	return answers, ours, done
}

// TestAgents_OverAStream: the same tools over standard input and output, until the input ends.
func TestAgents_OverAStream(t *testing.T) {
	t.Parallel()
	mine, ours, done := talk(t, serve.Options{Backend: &backend{&toy{}}, Only: []string{"other"}})
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: mine, Writer: ours}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, failed := called(t, session, "list_pipelines", nil); failed || strings.Contains(text, "public.docs") {
		t.Errorf("with another pipeline alone: %s", text)
	}
	if err := errors.Join(session.Close(), ours.Close()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the end: %v", err)
	}
}

// TestAgents_ALineThatIsNoMessageEndsNothing: an invalid line gets an error, and the session continues.
func TestAgents_ALineThatIsNoMessageEndsNothing(t *testing.T) {
	t.Parallel()
	mine, ours, done := talk(t, serve.Options{Backend: &backend{&toy{}}})
	answers := bufio.NewScanner(mine)
	const begin = `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
		"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}`
	for _, c := range []struct{ line, answer string }{
		{"nonsense", "-32700"},
		{strings.Join(strings.Fields(begin), " "), `"id":1`},
		{`{"jsonrpc": "2.0", "method": "notifications/initialized"}`, ""},
		{"\x00\xff", "-32700"},
		{"", ""},
		{`{"jsonrpc": "1.0", "id": 2, "method": "ping"}`, "-32700"},
		{`[{"jsonrpc": "2.0", "id": 3, "method": "ping"}]`, "-32700"},
		{`{"jsonrpc": "2.0", "id": 4, "method": "ping"} {}`, "-32700"},
		{strings.Repeat("[", 1<<20), "-32700"},
		{`"` + strings.Repeat("x", 9<<20) + `"`, "at most"},
		{`{"jsonrpc": "2.0", "id": 5, "method": "ping"}` + "\r", `"id":5`},
	} {
		if _, err := io.WriteString(ours, c.line+"\n"); err != nil {
			t.Fatalf("%.60q: %v", c.line, err)
		}
		if c.answer != "" && (!answers.Scan() || !strings.Contains(answers.Text(), c.answer)) {
			t.Fatalf("%.60q: %s, %v, want %s", c.line, answers.Text(), answers.Err(), c.answer)
		}
	}
	_ = ours.Close()
	if err := <-done; err != nil {
		t.Errorf("the end: %v", err)
	}
}

// TestDocument_HasWhatIsEmbedded: the OpenAPI document has the fields of embedded structs, which generated clients
// need.
func TestDocument_HasWhatIsEmbedded(t *testing.T) {
	t.Parallel()
	a := start(t, nil).do(http.MethodGet, "/openapi.json", "")
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(a.body, &document); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	for name, fields := range map[string][]string{
		"AcrossRequest": {"pipelines", "text", "k", "filter", "highlight"}, "RowsRequest": {"text", "k", "filter"},
		"EmbeddingsAnswer": {"data", "model", "usage"},
	} {
		for _, field := range fields {
			if _, there := document.Components.Schemas[name].Properties[field]; !there {
				t.Errorf("%s has no %s", name, field)
			}
		}
	}
}
