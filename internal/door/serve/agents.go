package serve

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// agentPath is the path of the Model Context Protocol.
const agentPath = "/mcp"

// Talk serves an agent over a pair of streams until the input or ctx ends. The agent has the rights of a caller without
// a token.
func Talk(ctx context.Context, o Options, in io.ReadCloser, out io.WriteCloser) error {
	o.fill()
	server := newAPI(&o).agent(ctx) //nolint:contextcheck // requests have their own
	answers := &oneByOne{WriteCloser: out}
	err := server.Run(ctx, &mcp.IOTransport{
		Reader: &messages{ReadCloser: in, from: bufio.NewReader(in), refused: answers}, Writer: answers,
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// oneByOne serializes writes.
type oneByOne struct {
	io.WriteCloser

	mu sync.Mutex
}

func (o *oneByOne) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.WriteCloser.Write(b)
}

// longestMessage is the maximum number of bytes of a line.
const longestMessage = 8 << 20

// messages is a stream with one message per line. The library would stop at an invalid line; here the agent gets an
// error.
type messages struct {
	io.ReadCloser

	from    *bufio.Reader
	refused io.Writer
	left    []byte // of the current line
}

func (m *messages) Read(b []byte) (int, error) {
	for len(m.left) == 0 {
		line, tooLong, err := m.line()
		if err != nil && len(line) == 0 && !tooLong {
			return 0, err
		}
		switch _, failed := jsonrpc.DecodeMessage(line); {
		case tooLong:
			err = m.refuse("a message has at most " + strconv.Itoa(longestMessage) + " bytes")
		case len(bytes.TrimSpace(line)) == 0:
		case failed != nil || !json.Valid(line):
			err = m.refuse("expected one message of JSON-RPC in each line")
		default:
			m.left = append(line, '\n')
		}
		if err != nil && len(m.left) == 0 {
			return 0, err
		}
	}
	n := copy(b, m.left)
	m.left = m.left[n:]
	return n, nil
}

// line returns the next line without its end; nothing if it is too long.
func (m *messages) line() (line []byte, tooLong bool, err error) {
	for {
		part, err := m.from.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > longestMessage; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), tooLong, err
		}
	}
}

func (m *messages) refuse(why string) error {
	const parseError = -32700
	_, err := fmt.Fprintf(m.refused, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", parseError, why)
	return err
}

// agents serves agents over HTTP. Each request is answered on its own and in one piece. There is no state between
// requests, so a revoked token stops working at once, and no answer stays open. A batch of messages is rejected,
// because its messages would be answered concurrently under one request slot.
func (a *api) agents() http.Handler {
	one := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server { return a.agent(r.Context()) },
		&mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true,
			// Without tokens, the check of the Host protects against web pages with a DNS name for this address. With
			// tokens it is not needed, and a proxy uses other names.
			DisableLocalhostProtection: a.Tokens != nil,
		})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the gate has read it
		if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
			a.Write(r.Context(), w, refuse("", "batch", "send one message per request: batches are not supported"))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		one.ServeHTTP(w, r)
	})
}

// agent makes a server for one caller, whose rights are in the context.
func (a *api) agent(ctx context.Context) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "embedsidecar", Version: cmp.Or(a.Version, "unknown")},
		&mcp.ServerOptions{Instructions: agentInstructions})
	for i := range agentTools {
		t := &agentTools[i]
		no := false
		server.AddTool(&mcp.Tool{
			Name: t.name, Description: t.description, InputSchema: t.schema(),
			Annotations: &mcp.ToolAnnotations{
				ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no, DestructiveHint: &no,
			},
		}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return a.call(ctx, t, r.Params.Arguments), nil
		})
	}
	return server
}

const agentInstructions = "Search tables of a PostgreSQL database by meaning. Nothing is changed. list_pipelines names " +
	"what can be searched; search finds rows near a text, similar rows near a row; explain tells why a row is or is " +
	"not found."

// agentTool is a tool with its arguments and its function.
type agentTool struct {
	name, description string
	fields            []string // of agentFields
	required          []string
	answer            func(ctx context.Context, a *api, r *agentRequest) (any, error)
}

// agentRequest holds the arguments of tools.
type agentRequest struct {
	Pipeline  string   `json:"pipeline" doc:"Name of the pipeline, or of its table"`
	Pipelines []string `json:"pipelines" maxItems:"16" nullable:"false" doc:"Several pipelines instead of one; their results are merged by rank"`
	RowsRequest
}

var agentTools = []agentTool{
	{
		name: "list_pipelines", description: "List the pipelines that can be searched, with their tables and keys.",
		answer: func(ctx context.Context, a *api, _ *agentRequest) (any, error) { return a.pipelines(ctx, nil) },
	},
	{
		name: "search", description: "Find the rows that are nearest in meaning to a text, nearest first: of a pipeline, or " +
			"of several.",
		fields: []string{
			"pipeline", "pipelines", "text", "k", "offset", "hybrid", "language", "filter", "max_distance", "fresh_only",
			"rerank", "columns", "highlight",
		},
		required: []string{"text"},
		answer: func(ctx context.Context, a *api, r *agentRequest) (any, error) {
			switch {
			case (r.Pipeline == "") == (len(r.Pipelines) == 0):
				return nil, refuse("pipeline", "missing", "name a pipeline, or several as pipelines")
			case r.Pipeline == "":
				return a.nearTextAcross(ctx, r.Pipelines, r.RowsRequest)
			}
			return a.nearText(ctx, r.Pipeline, r.RowsRequest)
		},
	},
	{
		name: "similar", description: "Find the rows of a pipeline that are nearest in meaning to one of its rows.",
		fields:   []string{"pipeline", "key", "k", "offset", "filter", "max_distance", "fresh_only", "columns"},
		required: []string{"pipeline", "key"},
		answer: func(ctx context.Context, a *api, r *agentRequest) (any, error) {
			return a.nearRow(ctx, r.Pipeline, r.RowsRequest)
		},
	},
	{
		name: "explain", description: "Tell whether the vector of a row is that of its present text, and if not, why.",
		fields: []string{"pipeline", "key"}, required: []string{"pipeline", "key"},
		answer: func(ctx context.Context, a *api, r *agentRequest) (any, error) { return a.explain(ctx, r) },
	},
}

var agentFields = sync.OnceValue(func() map[string]*huma.Schema {
	return huma.SchemaFromType(huma.NewMapRegistry("", huma.DefaultSchemaNamer), reflect.TypeFor[agentRequest]()).Properties
})

func (t *agentTool) schema() map[string]any {
	properties := map[string]*huma.Schema{}
	for _, name := range t.fields {
		properties[name] = agentFields()[name]
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(t.required) > 0 {
		schema["required"] = t.required
	}
	return schema
}

// call runs a tool. Errors are in the answer, for the agent to read.
func (a *api) call(ctx context.Context, t *agentTool, arguments []byte) (result *mcp.CallToolResult) {
	failed := func(err error) *mcp.CallToolResult {
		p := a.Problem(ctx, err)
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{
			&mcp.TextContent{Text: strings.Join(append([]string{p.Detail}, p.Hints...), "\n")},
		}}
	}
	defer func() { // the library's goroutine would not recover it
		if panicked := recover(); panicked != nil {
			a.Log.ErrorContext(ctx, "tool panicked", "tool", t.name, "panic", fmt.Sprint(panicked))
			result = failed(fmt.Errorf("tool %s panicked", t.name))
		}
	}()
	request, err := a.agentRequest(t, arguments)
	if err != nil {
		return failed(err)
	}
	answer, err := t.answer(ctx, a, request)
	if err != nil {
		return failed(err)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return failed(err)
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text),
	}
}

// agentRequest reads the arguments of a tool as strictly as a request body.
func (a *api) agentRequest(t *agentTool, arguments []byte) (*agentRequest, error) {
	r := &agentRequest{RowsRequest: RowsRequest{K: absent, Limit: absent}}
	given := map[string]json.RawMessage{}
	if len(arguments) > 0 {
		if err := wrong(decode(arguments, &given, true)); err != nil {
			return nil, err
		}
	}
	for name := range given {
		if !slices.Contains(t.fields, name) {
			return nil, refuse(cut(name), "unknown_parameter", "%s is no parameter of this tool", cut(name))
		}
	}
	for _, name := range t.required {
		if _, there := given[name]; !there {
			return nil, refuse(name, "missing", "%s is missing", name)
		}
	}
	if len(arguments) > 0 {
		if err := wrong(decode(arguments, r, true)); err != nil {
			return nil, err
		}
	}
	var err error
	r.RowsRequest, err = a.checkRows(r.RowsRequest)
	return r, err
}

// explain returns the state of a row that the caller may see. If the access is limited to some rows, others look as if
// they did not exist. Otherwise the state of a deleted row is returned, too.
func (a *api) explain(ctx context.Context, r *agentRequest) (none query.Explained, err error) {
	return query.Settled(ctx, func(fresh bool) (query.Explained, error) {
		p, access, err := a.seen(ctx, r.Pipeline, fresh)
		if err != nil {
			return none, err
		}
		return search.Within(ctx, a.Search, func(ctx context.Context) (query.Explained, error) {
			if err := search.Visible(ctx, a.Backend.DB(), p, string(r.Key), access); err != nil {
				return none, err
			}
			return a.Backend.Explain(ctx, p, string(r.Key))
		})
	})
}
