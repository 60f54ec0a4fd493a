package docs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestSearching does what search.md shows, in its order: commands, requests, Python and SQL as they are written
// there. Others are the address and the name of the model only.
func TestSearching(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	paper := read(t, "search.md")
	if got := [...]int{
		len(blocks(paper, "sh")), len(blocks(paper, "python")), len(blocks(paper, "json")),
		len(blocks(paper, "sql")), len(blocks(paper, "yaml")),
	}; got != [...]int{5, 5, 1, 6, 2} { // the page in Django is tried with the real one: internal/e2e
		t.Fatalf("search.md has other blocks than this test knows: %v of sh, python, json, sql and yaml", got)
	}
	for _, flags := range []string{"--set 'pipelines[0].into.type=halfvec'", "--index hnsw"} {
		r.has(paper, "`"+flags+"`")
	}
	r.sh("embedsidecar run --once --table public.docs --columns title,body --into-table docs_embedding --set 'pipelines[0].into.type=halfvec' --index hnsw")

	for line := range strings.Lines(r.only("search.md", "sh", "embedsidecar search")) {
		switch out := r.sh(line); {
		case strings.Contains(line, "--explain"):
			r.has(out, "SELECT", "Limit")
		case strings.Contains(line, "--hybrid"):
			r.has(out, "KEY", "SCORE", "DISTANCE", "TEXT", "Password")
		default:
			r.has(out, "KEY", "DISTANCE", "TEXT", "Password")
		}
	}
	r.words(paper)
	r.has(r.sh("embedsidecar status"), "hnsw")
	r.bySQL()

	create, serve, _ := strings.Cut(r.only("search.md", "sh", "token="), "\n")
	token := strings.TrimSpace(r.sh(create + `; printf %s "$token"`))
	r.has(paper, "`search: {filterable: [tenant]}`")
	rules := "pipelines:\n- {table: public.docs, columns: [title, body], into: {table: docs_embedding}, search: {filterable: [status, tenant, deleted_at]}}\n"
	if err := os.WriteFile(filepath.Join(r.dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	ops := testenv.Nowhere(t)
	listens, _ := r.start(strings.NewReplacer(address, "127.0.0.1:0", " &", " --config rules.yaml --ops-listen "+ops).
		Replace(serve), "queries are answered", "address")
	r.has(r.sh(strings.ReplaceAll(r.only("search.md", "sh", "timeout 120"), "127.0.0.1:7471", ops)), "ok")
	url := "http://" + listens
	r.endpoints(paper, url, token)
	r.curl(r.only("search.md", "sh", "curl"), r.only("search.md", "json", "{"), url, token)

	client := filepath.Join(r.dir, "client.py")
	script := strings.NewReplacer("http://"+address, url, "all-MiniLM-L6-v2", "fake").Replace(r.only("search.md", "python",
		"from openai"))
	if err := os.WriteFile(client, []byte("import os\ntoken = os.environ['TOKEN']\n"+script), 0o600); err != nil {
		t.Fatal(err)
	}
	r.sh(testenv.Python(t, "openai")+" client.py", "TOKEN="+token)
	r.agents(url, token)

	r.has(r.sh("embedsidecar token list --tokens-file tokens"), "app")
	r.sh("embedsidecar token revoke app --tokens-file tokens")
	r.answers(http.StatusUnauthorized, http.MethodGet, url+"/v1/models", token, "")
}

// patient is a client of HTTP that waits for answers for longer than the five seconds that are usual: a busy machine
// takes its time.
const patient = "AsyncClient(timeout=300, "

// agents runs what the paper shows for agents, in the official client for Python, and each tool by both ways.
func (r *reader) agents(url, token string) {
	r.t.Helper()
	write := func(name, script string) string {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(script), 0o600); err != nil {
			r.t.Fatal(err)
		}
		return testenv.Python(r.t, "mcp") + " " + name
	}
	shown := strings.NewReplacer("http://"+address, url, "AsyncClient(", patient).Replace(r.only("search.md", "python",
		"import asyncio"))
	r.has(r.sh(write("agent.py", shown), "TOKEN="+token), "'explain', ", "'similar'", `"distance":`, "Password")
	r.db.MustExec("CREATE TABLE public.other AS SELECT id, title FROM public.docs")
	r.db.MustExec("ALTER TABLE public.other ADD PRIMARY KEY (id)")
	r.sh("embedsidecar run --once --table public.other --columns title --into-table other_embedding")
	narrow := strings.TrimSpace(r.sh("embedsidecar token create narrow --only public.other --tokens-file tokens"))
	// The listener reads the file of tokens again when it has changed, a moment later.
	r.sh(`until curl -sf -m 5 -o /dev/null -H "Authorization: Bearer $NARROW" `+url+`/v1/models; do sleep 0.05; done`,
		"NARROW="+narrow)
	r.sh(write("tools.py", strings.Replace(agentScript, "AsyncClient(", patient, 1)),
		"TOKEN="+token, "NARROW="+narrow, "MCP="+url+"/mcp")
	if n := testenv.Value[int64](r.db, "SELECT count(*) FROM public.docs"); n != 60 {
		r.t.Errorf("hostile arguments left %d rows", n)
	}
}

// agentScript calls each tool over both ways, and as somebody who may see another pipeline alone.
const agentScript = `
import asyncio, json, os
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

async def use(client):
    tools = (await client.list_tools()).tools
    assert {t.name for t in tools} == {"list_pipelines", "search", "similar", "explain"}
    assert all(p["description"] for t in tools for p in t.input_schema["properties"].values()), tools
    async def call(name, **arguments):
        result = await client.call_tool(name, arguments)
        return result.is_error, result.content[0].text
    async def answer(name, **arguments):
        failed, text = await call(name, **arguments)
        assert not failed, text
        return json.loads(text)
    async def hostile(name, **arguments):
        try:
            failed, text = await call(name, **arguments)
        except Exception as refused:
            failed, text = True, str(refused)
        assert failed and "panic" not in text and len(text) < 2000, (name, arguments, text)
    for name, argument in (
        ("search", {"text": ["x"]}), ("search", {"text": "x\0"}), ("search", {"text": "x" * 2_000_000}),
        ("search", {"text": "x", "k": -1}), ("search", {"text": "x", "k": 10 ** 30}),
        ("search", {"text": "x", "offset": -1}), ("search", {"text": "x", "sql": "DROP TABLE docs"}),
        ("search", {"text": "x", "columns": ["1; DROP TABLE docs"]}),
        ("search", {"text": "x", "filter": {"a' OR true --": 1}}),
        ("search", {"text": "x", "filter": {"id": {"$where": "1"}}}),
        ("search", {"text": "x", "hybrid": True, "language": "english'); DROP TABLE docs; --"}),
        ("similar", {"key": {"$gt": 0}}), ("similar", {"key": "1'; DROP TABLE docs; --"}), ("explain", {}),
        ("explain", {"key": 1, "text": True}), ("drop_table", {"key": 1}), ("", {}),
    ):
        await hostile(name, pipeline="public.docs", **argument)
    await hostile("search", pipeline="docs'; DROP TABLE docs; --", text="x")
    await hostile("search", pipelines=["docs"] * 1000, text="x")
    seen = {p["name"] for p in (await answer("list_pipelines"))["pipelines"]}
    if seen == {"public.other"}:
        for name, argument in (("search", {"text": "reset"}), ("similar", {"key": 7}), ("explain", {"key": 7})):
            await answer(name, pipeline="public.other", **argument)
            failed, text = await call(name, pipeline="public.docs", **argument)
            assert failed and "no pipeline" in text, text
        failed, text = await call("search", pipelines=["public.docs", "public.other"], text="reset")
        assert failed and "no pipeline" in text, text
        return False
    assert "public.docs" in seen, seen
    late = {"id": {"$gt": 50}}
    rows = (await answer("search", pipeline="docs", text="reset", k=2, filter=late, columns=["title"]))["rows"]
    assert len(rows) == 2 and all(int(r["key"]) > 50 for r in rows), rows
    assert all(r["columns"]["title"].startswith("Password") for r in rows), rows
    rows = (await answer("search", pipelines=["docs"], text="reset", k=2, highlight=True))["rows"]
    assert len(rows) == 2 and rows[0]["pipeline"] == "public.docs", rows
    assert "<mark>reset</mark>" in rows[0]["highlight"], rows
    failed, text = await call("search", pipelines=["docs", "nonesuch"], text="reset")
    assert failed and "no pipeline" in text, text
    failed, text = await call("search", text="reset")
    assert failed and "name a pipeline" in text, text
    rows = (await answer("similar", pipeline="public.docs", key=7, k=3))["rows"]
    assert len(rows) == 3 and "7" not in [r["key"] for r in rows], rows
    assert (await answer("explain", pipeline="public.docs", key="7"))["verdict"] == "current"
    assert (await answer("explain", pipeline="public.docs", key="777"))["verdict"] == "gone"
    failed, text = await call("search", pipeline="public.docs", text="x", filter={"id": {"$gt": "1); DROP TABLE docs"}})
    assert failed and "does not fit" in text, text
    failed, text = await call("search", pipeline="public.docs", text="x", columns=["tableoid"])
    assert failed and "no column" in text, text
    return True

async def main():
    for token, sees in ((os.environ["TOKEN"], True), (os.environ["NARROW"], False)):
        async with httpx2.AsyncClient(headers={"Authorization": "Bearer " + token}) as http:
            async with Client(streamable_http_client(os.environ["MCP"], http_client=http)) as client:
                assert await use(client) == sees
    server = StdioServerParameters(command="embedsidecar", args=["mcp", "public.docs"], env=dict(os.environ))
    async with Client(server) as client:
        assert await use(client)

asyncio.run(main())
`

// bySQL searches by SQL while a sidecar runs. The procedure comes first: with it the rest works on every version.
func (r *reader) bySQL() {
	r.t.Helper()
	_, stop := r.start("embedsidecar run", "pipeline started", "pipeline")
	defer stop()
	for _, begin := range []string{
		"CALL embedsidecar.ask", "SELECT * FROM embedsidecar.search", "SELECT id FROM", "SELECT pipeline", "SELECT d.id",
	} {
		sql := strings.ReplaceAll(r.only("search.md", "sql", begin), "::vector)", "::halfvec)") // as the destination is
		sql = strings.ReplaceAll(sql, "public.tickets", "docs")                                 // which means public.docs: there is no other here
		script := `psql -X -A -t -v ON_ERROR_STOP=1 "$EMBEDSIDECAR_DATABASE_URL" <<'EOF'` + "\n" + sql + "EOF"
		if strings.HasPrefix(begin, "CALL") { // it waits for five seconds, in which a busy machine starts no plugin
			script = "tries=0; until out=$(" + script + "\n" + `); do test "$((tries += 1))" -lt 20; done; printf '%s\n' "$out"`
		}
		out := r.sh(script)
		if n := strings.Count(out, "\n"); n < 5 {
			r.t.Errorf("%s found %d rows:\n%s", sql, n, out)
		}
	}
}

// words makes the index that search.md shows, and finds it to be the one that the program proposes.
func (r *reader) words(paper string) {
	r.t.Helper()
	shown := r.only("search.md", "sql", "CREATE INDEX")
	explained := r.sh("embedsidecar search public.docs words --hybrid --explain --language english")
	_, proposed, ok := strings.Cut(explained, "-- the index that the words can use:\n")
	if !ok {
		r.t.Fatalf("no index is proposed:\n%s", explained)
	}
	for _, sql := range []string{shown, proposed} {
		r.db.MustExec(strings.TrimSuffix(strings.TrimSpace(sql), ";"))
	}
	got := testenv.Values[string](r.db,
		`SELECT DISTINCT pg_get_expr(indexprs, indrelid) FROM pg_index WHERE indrelid = 'public.docs'::regclass AND indexprs IS NOT NULL`)
	if len(got) != 1 {
		r.t.Errorf("the index of search.md is not the one that the program proposes: %q", got)
	}
	r.has(paper, "coalesce(title::text, '')")
}

// endpoints sends what the table of requests names, with each field and value that it names.
func (r *reader) endpoints(paper, url, token string) {
	r.t.Helper()
	requests := map[string][]string{
		"POST /v1/embeddings": {
			`{"input": "a text", "model": "fake"}`,
			`{"input": ["one", "two"], "encoding_format": "float", "input_type": "document"}`,
			`{"input": "a", "encoding_format": "base64", "input_type": "query"}`,
		},
		"GET /v1/models": {""}, "GET /v1/models/NAME": {""}, "GET /v1/pipelines": {""}, "GET /healthz": {""},
		"POST /v1/pipelines/NAME/search": {
			`{"text": "reset", "k": 3}`, `{"text": "reset", "hybrid": true, "language": "english"}`,
			`{"text": "reset", "filter": ` + r.inline(paper, `{"status": `) + `}`,
			`{"text": "reset", "limit": 3, "offset": 1, "max_distance": 2, "fresh_only": true, "columns": ["status"]}`,
		},
		"POST /v1/search":                 {`{"pipelines": ["docs"], "text": "reset", "k": 3, "highlight": true}`},
		"POST /v1/pipelines/NAME/similar": {`{"key": "42", "k": 3, "filter": {"tenant": [7, 8]}}`},
	}
	said := map[string]string{
		"GET /v1/models/NAME": `"fingerprint"`, "GET /v1/pipelines": `"metric":"cosine"`,
		"POST /v1/pipelines/NAME/search": `"rows":[{"key":`, "POST /v1/pipelines/NAME/similar": `"rows":[{"key":`,
		"POST /v1/search": `"rows":[{"pipeline":"public.docs","key":`,
	}
	known := 0
	for _, row := range regexp.MustCompile(
		"(?m)^\\| `(GET|POST) ([^`]+)`(?:, `([^`]+)`)? \\|(.*)\\|$").FindAllStringSubmatch(paper, -1) {
		for _, path := range row[2:4] {
			if path == "" {
				continue
			}
			bodies, ok := requests[row[1]+" "+path]
			if !ok {
				r.t.Errorf("search.md tells of %s %s, which this test does not know", row[1], path)
				continue
			}
			known++
			full := strings.Replace(strings.Replace(path, "pipelines/NAME", "pipelines/public.docs", 1), "models/NAME",
				"models/fake", 1)
			all := strings.Join(bodies, "")
			for _, body := range bodies {
				bearer := token
				if path == "/healthz" {
					bearer = ""
				}
				answer := r.answers(http.StatusOK, row[1], url+full, bearer, body)
				r.has(answer, said[row[1]+" "+path])
				all += answer
			}
			for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[4], -1) {
				if !strings.Contains(all, word[1]) {
					r.t.Errorf("%s %s: no request of this test has %s", row[1], path, word[1])
				}
			}
		}
	}
	if known != len(requests) {
		r.t.Errorf("search.md tells of %d requests, this test knows %d", known, len(requests))
	}
	r.answers(http.StatusMethodNotAllowed, http.MethodGet, url+"/v1/pipelines/public.docs/search?text=reset", token, "")
}

// inline returns what is set as code outside of blocks and begins with some words.
func (r *reader) inline(paper, begin string) string {
	r.t.Helper()
	for _, code := range inline(paper) {
		if strings.HasPrefix(code, begin) {
			return code
		}
	}
	r.t.Fatalf("there is no code that begins with %s", begin)
	return ""
}

// curl sends the request of a curl command, which the shell takes apart, and compares the form of the answer with the
// one that is shown.
func (r *reader) curl(command, shown, url, token string) {
	r.t.Helper()
	words := strings.Split(r.sh(`curl() { for word; do printf '%s\0' "$word"; done; }`+"\n"+command, "token="+token),
		"\x00")
	var headers []string
	var target, body string
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "-H":
			i++
			headers = append(headers, words[i])
		case "-d":
			i++
			body = words[i]
		case "":
		default:
			target = words[i]
		}
	}
	if !slices.Contains(headers, "Authorization: Bearer "+token) || !slices.Contains(headers,
		"Content-Type: application/json") {
		r.t.Errorf("headers %q", headers)
	}
	var want, got any
	if err := json.Unmarshal([]byte(shown), &want); err != nil {
		r.t.Fatalf("%v: %s", err, shown)
	}
	answer := r.answers(http.StatusOK, http.MethodPost, strings.Replace(target, "http://"+address, url, 1), token, body)
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		r.t.Fatalf("%v: %s", err, answer)
	}
	if form(got) != form(want) {
		r.t.Errorf("the answer has the form %s, search.md shows %s", form(got), form(want))
	}
	r.has(answer, `"pipeline":"public.docs"`, `"metric":"cosine"`)
}

// form writes the keys and types of a value. The elements of a list are taken to be like its first.
func form(value any) string {
	switch v := value.(type) {
	case map[string]any:
		var keys []string
		for key, of := range v {
			keys = append(keys, key+": "+form(of))
		}
		slices.Sort(keys)
		return "{" + strings.Join(keys, ", ") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + form(v[0]) + "]"
	}
	return fmt.Sprintf("%T", value)
}

// TestSearching_TypesAndIndexes uses the configuration of search.md, and a sparse model.
func TestSearching_TypesAndIndexes(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	paper := read(t, "search.md")
	if err := os.WriteFile(filepath.Join(r.dir, "embedsidecar.yaml"), []byte(r.only("search.md", "yaml", "pipelines:")),
		0o600); err != nil {
		t.Fatal(err)
	}
	r.sh("embedsidecar run --once --config embedsidecar.yaml")
	index := testenv.Value[string](r.db,
		`SELECT indexdef FROM pg_indexes WHERE tablename = 'docs_embedding' AND indexdef LIKE '%hnsw%'`)
	r.has(index, "halfvec_cosine_ops")
	r.has(r.sh("embedsidecar search docs reset -k 1"), "Password")

	r.has(paper, "`{23:2.3,18521:1.7}/30522`", "400 `sparse_model`")
	sparse := []string{"EMBEDSIDECAR_PLUGIN_SPARSE=true", "EMBEDSIDECAR_PLUGIN_DIMS=30522", "EMBEDSIDECAR_DATABASE_URL="}
	if got := strings.TrimSpace(r.sh("embedsidecar embed 'some words'",
		sparse...)); !regexp.MustCompile(`^\{\d+:[\d.]+(,\d+:[\d.]+)*\}/30522$`).MatchString(got) {
		t.Errorf("a sparse vector is printed as %s", got)
	}
	r.has(r.sh("embedsidecar embed 'some words' -o json", sparse...), `"indices"`, `"vector"`)
	listens, _ := r.start("embedsidecar serve --http 127.0.0.1:0 --no-auth", "queries are answered", "address", sparse...)
	r.has(r.answers(http.StatusBadRequest, http.MethodPost, "http://"+listens+"/v1/embeddings", "",
		`{"input": "some words"}`), "sparse_model")
}

// TestReadme_AfterTheQuickStart runs what the README shows beside its three commands: the query, the index, what
// shows that all is well, and the way to be rid of it.
func TestReadme_AfterTheQuickStart(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	const run = "embedsidecar run --table public.docs --columns title,body --into-table docs_embedding"
	readme := read(t, "../README.md")
	if !strings.Contains(readme, "bin/"+run) {
		t.Errorf("the README does not have %s", run)
	}
	_, stop := r.start(run, "streaming", "slot")
	r.sh(strings.NewReplacer("bin/", "", "--timeout 1m", "--timeout 4m").Replace(r.only("../README.md", "sh",
		"bin/embedsidecar check"))) // a busy machine takes its time
	vector := strings.TrimSpace(r.sh("embedsidecar embed --kind query 'reset my password'"))
	query := strings.Replace(strings.TrimRight(r.only("../README.md", "sql", "SELECT d.id"), ";\n"), "$1", "'"+vector+"'",
		1)
	for range 2 { // without the index and with it
		if rows := testenv.Values[int64](r.db, "SELECT id FROM ("+query+") AS found"); len(rows) != 5 {
			t.Errorf("the README's query found rows %v", rows)
		}
		r.db.MustExec(r.inline(readme, "CREATE INDEX CONCURRENTLY ON docs_embedding"))
	}
	stop()
	r.has(r.sh("embedsidecar uninstall"), "DROP SCHEMA embedsidecar")
	r.sh("embedsidecar uninstall --yes")
	if n := testenv.Value[int](r.db, "SELECT count(*) FROM docs_embedding"); n != 60 {
		t.Errorf("%d vectors are left", n)
	}
	r.sh("embedsidecar uninstall --yes --drop-embeddings")
	if there := testenv.Value[bool](r.db, "SELECT to_regclass('public.docs_embedding') IS NOT NULL"); there {
		t.Error("the vectors are still there")
	}
}

// TestSQL_ExamplesRun runs what sql.md shows, as a member of the group of operators.
func TestSQL_ExamplesRun(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.sh(`embedsidecar run --once --pipeline 'docs: title, body -> table docs_embedding'`)
	r.db.RunRole()
	_, operator := r.db.SQLRoles()
	r.db.MustExec("GRANT SELECT, UPDATE ON docs TO " + operator)
	r.db.MustExec("GRANT EXECUTE ON FUNCTION embedsidecar.hint, embedsidecar.create_pipeline, " +
		"embedsidecar.change_pipeline, embedsidecar.drop_pipeline TO " + operator)
	scripts := blocks(read(t, "sql.md"), "sql")
	if len(scripts) < 4 {
		t.Fatalf("sql.md shows %d scripts", len(scripts))
	}
	for _, script := range scripts {
		r.sh(`psql -X -v ON_ERROR_STOP=1 -f - "$URL" <<'END'`+"\n"+script+"END\n", "URL="+r.db.URL(operator))
	}
	if n := testenv.Value[int](r.db, `SELECT count(*) FROM embedsidecar.audit WHERE role = $1`, operator); n != 18 {
		t.Errorf("%d entries in the audit", n)
	}
}
