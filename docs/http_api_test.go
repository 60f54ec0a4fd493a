package docs

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHTTPAPI does what http-api.md shows, and compares its table with what the program says there is.
func TestHTTPAPI(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	paper := read(t, "http-api.md")
	if got := [...]int{len(blocks(paper, "sh")), len(blocks(paper, "sql"))}; got != [...]int{2, 1} {
		t.Fatalf("http-api.md has other blocks than this test knows: %v of sh and sql", got)
	}
	const flags = " --table public.docs --columns title,body --into-table docs_embedding"
	create, run, _ := strings.Cut(r.only("http-api.md", "sh", "embedsidecar token"), "\n")
	r.sh(create)
	listens, _ := r.start(strings.NewReplacer("127.0.0.1:7472", "127.0.0.1:0", " &", flags).Replace(strings.TrimSpace(run)),
		"administrators are answered", "address")
	token := strings.TrimSpace(r.sh("cat token"))
	url := "http://" + listens + "/api/v1"
	r.answers(http.StatusOK, http.MethodGet, url+"/pipelines/public.docs", token, "") // set up

	set, curls, _ := strings.Cut(r.only("http-api.md", "sh", "admin="), "\n")
	set = strings.Replace(set, "127.0.0.1:7472", listens, 1)
	said := map[string]string{
		"/status": `"pipelines":`, "/tasks?": `"tasks":`, "/rows/42": `"verdict":`, "/wait": `"caught_up":true`, "dry_run": `"dry_run":true`,
		`"pipelines": [`: `"nothing_to_retry"`, "/pause": `"paused"`, "/resume": `"resumed"`, "/audit": `"said_by":"http:oncall@127.0.0.1"`,
	}
	// the row has its vector when the wait is over
	r.sh("embedsidecar wait --caught-up --timeout 5m")
	for line := range strings.Lines(curls) {
		out := r.sh(set + "\n" + line)
		known := 0
		for part, word := range said {
			if strings.Contains(line, part) {
				known++
				r.has(out, word)
			}
		}
		if known == 0 {
			t.Errorf("http-api.md shows a request that this test does not know: %s", line)
		}
	}

	var document struct {
		Paths map[string]map[string]struct {
			Role string `json:"x-role"`
		}
	}
	written := r.answers(http.StatusOK, http.MethodGet, "http://"+listens+"/openapi.json", token, "")
	if err := json.Unmarshal([]byte(written), &document); err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for path, methods := range document.Paths {
		for method, op := range methods {
			there[strings.ToUpper(method)+" "+strings.TrimPrefix(path, "/api/v1")] = op.Role
		}
	}
	told := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (viewer|operator|admin) \|`).FindAllStringSubmatch(paper, -1) {
		for _, request := range regexp.MustCompile("`((?:GET|POST|PATCH|DELETE) /[^`]*)`").FindAllStringSubmatch(row[1], -1) {
			told[request[1]] = row[2]
		}
	}
	if !maps.Equal(there, told) {
		t.Errorf("http-api.md tells of %v\nthere are %v", slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(there)))
	}
}
