package models_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// A hub serves one model, and handles its weights as a test asks.
type hub struct {
	*httptest.Server

	files map[string]string

	mu sync.Mutex
	// the Range headers of each file's requests, "" for none
	asked   map[string][]string
	weights func(w http.ResponseWriter, r *http.Request, try int) bool // true: it answered
	others  func(w http.ResponseWriter, name string) bool              // the same for any file
}

const weights = "model.safetensors"

// newHub serves a model whose weights have some hundred random kilobytes.
func newHub(t *testing.T) *hub {
	t.Helper()
	var long strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&long, "%09d\n", i)
	}
	h := &hub{asked: map[string][]string{}, files: map[string]string{
		"config.json": `{"model_type": "bert"}`, "tokenizer.json": `{"model": {"type": "WordPiece"}}`,
		"modules.json": `[{"path": ""}, {"path": "1_Pooling"}]`, "1_Pooling/config.json": `{}`, weights: long.String(),
	}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/author/model/resolve/main/")
	content, found := h.files[name]
	if !ok || !found {
		http.NotFound(w, r)
		return
	}
	h.mu.Lock()
	h.asked[name] = append(h.asked[name], r.Header.Get("Range"))
	try := len(h.asked[name])
	h.mu.Unlock()
	w.Header().Set("Etag", etagOf(content))
	if h.others != nil && h.others(w, name) {
		return
	}
	if name == weights && h.weights != nil && h.weights(w, r, try) {
		return
	}
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(content)) // handles Range and If-Range
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func etagOf(content string) string { return `"` + sumOf(content)[:16] + `"` }

func (h *hub) sums() models.Sums {
	sums := models.Sums{}
	for name, content := range h.files {
		sums[name] = sumOf(content)
	}
	return sums
}

func (h *hub) options(t *testing.T) models.PullOptions {
	t.Helper()
	return models.PullOptions{
		Hub: h.URL, Name: "author/model", Into: filepath.Join(t.TempDir(), "new"),
		Pause: time.Millisecond, Stall: 5 * time.Minute,
	}
}

// wantPulled pulls, and checks that exactly the hub's files are there, and no partial ones.
func wantPulled(t *testing.T, h *hub, o models.PullOptions) {
	t.Helper()
	got, err := models.Pull(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, h.sums()) {
		t.Errorf("got %v, want %v", got, h.sums())
	}
	for name, content := range h.files {
		if data, err := os.ReadFile(filepath.Join(o.Into, name)); err != nil || string(data) != content {
			t.Errorf("%s has %d bytes, want %d (%v)", name, len(data), len(content), err)
		}
	}
	wantNoParts(t, o.Into)
}

// pullFails pulls, and checks the error.
func pullFails(t *testing.T, o models.PullOptions, want string) {
	t.Helper()
	if _, err := models.Pull(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("pull %s: got %v, want %q", o.File, err, want)
	}
}

func wantNoParts(t *testing.T, folder string) {
	t.Helper()
	if parts, err := filepath.Glob(filepath.Join(folder, "*.part*")); err != nil || len(parts) > 0 {
		t.Errorf("left behind: %v (%v)", parts, err)
	}
}

func TestPull(t *testing.T) {
	h := newHub(t)
	o := h.options(t)
	seen := map[string]int64{}
	o.Progress = func(file string, done, total int64) {
		if done < seen[file] || total != int64(len(h.files[file])) {
			t.Errorf("%s: %d of %d bytes after %d", file, done, total, seen[file])
		}
		seen[file] = done
	}
	wantPulled(t, h, o)
	if seen[weights] != int64(len(h.files[weights])) {
		t.Errorf("the progress ended at %d bytes", seen[weights])
	}
	// Existing files are not downloaded again.
	before := len(h.asked[weights])
	wantPulled(t, h, o)
	if len(h.asked[weights]) != before {
		t.Error("the weights were fetched again")
	}
}

// TestTrust_APullFollowsNoLink: in a folder that others can write to, a link may have the name of a partial file.
func TestTrust_APullFollowsNoLink(t *testing.T) {
	t.Parallel()
	for _, name := range []string{weights + ".part", weights + ".part.tag", ".lock"} {
		h := newHub(t)
		o := h.options(t)
		his := filepath.Join(t.TempDir(), "of the one who pulls")
		if err := errors.Join(os.Mkdir(o.Into, 0o755), os.WriteFile(his, []byte("kept"), 0o600),
			os.Symlink(his, filepath.Join(o.Into, name))); err != nil {
			t.Fatal(err)
		}
		_, err := models.Pull(t.Context(), o)
		if data, failed := os.ReadFile(his); err == nil || failed != nil || string(data) != "kept" {
			t.Errorf("%s: %v, and the file has %q (%v)", name, err, data, failed)
		}
	}
}

// An interrupted download continues where it ended, as often as it makes progress.
func TestPull_Drops(t *testing.T) {
	h := newHub(t)
	h.weights = func(w http.ResponseWriter, r *http.Request, try int) bool {
		if try > 8 {
			return false
		}
		from := 0
		if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
			from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(h.files[weights])-1, len(h.files[weights])))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(h.files[weights])-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = io.WriteString(w, h.files[weights][from:from+20_000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	o := h.options(t)
	o.Retries = 2 // fewer than the interruptions: each makes progress
	wantPulled(t, h, o)
	ranges := h.asked[weights]
	if len(ranges) != 9 || ranges[0] != "" || ranges[8] == "" {
		t.Errorf("asked for %v, want the whole and then what was missing", ranges)
	}
}

// A stalled connection is closed, and the next one continues.
func TestPull_Stalls(t *testing.T) {
	h := newHub(t)
	h.weights = func(w http.ResponseWriter, r *http.Request, try int) bool {
		if try > 1 {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(h.files[weights])))
		_, _ = io.WriteString(w, h.files[weights][:50_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done() // until the client is gone
		return true
	}
	o := h.options(t)
	o.Stall = 2 * time.Second
	wantPulled(t, h, o)
	// from an offset that depends on timing
	if got := h.asked[weights]; len(got) < 2 || !strings.HasPrefix(got[1], "bytes=") {
		t.Errorf("asked for %v", got)
	}
}

// A wrong file is downloaded once more from the beginning; if it is wrong again, it is an error, and the file is
// deleted.
func TestPull_Corrupts(t *testing.T) {
	for _, always := range []bool{false, true} {
		h := newHub(t)
		h.weights = func(w http.ResponseWriter, _ *http.Request, try int) bool {
			if try > 1 && !always {
				return false
			}
			_, _ = io.WriteString(w, strings.Replace(h.files[weights], "000012345", "000012346", 1))
			return true
		}
		o := h.options(t)
		o.Pins = models.Sums{weights: sumOf(h.files[weights])}
		if !always {
			wantPulled(t, h, o)
			continue
		}
		_, err := models.Pull(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "but its pin says "+o.Pins[weights]) || !strings.Contains(err.Error(),
			"twice") || len(h.asked[weights]) != 2 {
			t.Errorf("got %v after %d tries, want that it is not what is pinned", err, len(h.asked[weights]))
		}
		if _, err := os.Stat(filepath.Join(o.Into, weights)); err == nil {
			t.Error("the wrong weights are there")
		}
		wantNoParts(t, o.Into)
	}
}

// A sha256 that the hub reports is verified even without a pin.
func TestPull_BelievesTheTagOfTheHub(t *testing.T) {
	h := newHub(t)
	h.weights = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("X-Linked-Etag", `"`+sumOf("something else")+`"`)
		return false
	}
	pullFails(t, h.options(t), "the hub says "+sumOf("something else"))
}

// A partial file of another version is deleted, and one of another process is continued.
func TestPull_GoesOnInAnotherProcess(t *testing.T) {
	whole := newHub(t).files[weights]
	tag, other := etagOf(whole), strings.Repeat("x", 30_000)
	for name, part := range map[string]struct {
		content, tag string
		ranges       string // of the first request
	}{
		"the same file":    {whole[:30_000], tag, "bytes=30000-"},
		"an older file":    {other, `"old"`, "bytes=30000-"},
		"no tag":           {other, "", ""},
		"the whole file":   {whole, tag, "bytes=400000-"},
		"more than a file": {whole + whole, tag, "bytes=800000-"},
	} {
		h := newHub(t)
		o := h.options(t)
		if err := os.MkdirAll(o.Into, 0o755); err != nil {
			t.Fatal(err)
		}
		for suffix, content := range map[string]string{".part": part.content, ".part.tag": part.tag} {
			if err := os.WriteFile(filepath.Join(o.Into, weights+suffix), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wantPulled(t, h, o)
		if h.asked[weights][0] != part.ranges {
			t.Errorf("%s: asked for %q, want %q", name, h.asked[weights], part.ranges)
		}
	}
}

// Responses that mean "later" are retried for some time; others are not.
func TestPull_Answers(t *testing.T) {
	for _, test := range []struct {
		code, tries int
		want        string
	}{
		{http.StatusServiceUnavailable, 4, "gave up after 4 retries without progress: the hub answers 503"},
		{http.StatusTooManyRequests, 4, "429"},
		{http.StatusForbidden, 1, "it does not exist, or access is restricted"},
		{http.StatusTeapot, 1, "418"},
	} {
		h := newHub(t)
		h.weights = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.WriteHeader(test.code)
			return true
		}
		o := h.options(t)
		o.Retries = 3
		_, err := models.Pull(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), weights) ||
			len(h.asked[weights]) != test.tries {
			t.Errorf("%d: got %v after %d tries, want %q after %d", test.code, err, len(h.asked[weights]), test.want, test.tries)
		}
	}
}

// A range that was not requested would put bytes in the wrong place.
func TestPull_WrongRange(t *testing.T) {
	h := newHub(t)
	h.weights = func(w http.ResponseWriter, r *http.Request, try int) bool {
		switch try {
		case 1:
			w.Header().Set("Content-Length", strconv.Itoa(len(h.files[weights])))
			_, _ = io.WriteString(w, h.files[weights][:20_000])
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(h.files[weights])-1, len(h.files[weights])))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, h.files[weights])
			return true
		}
		return false
	}
	o := h.options(t)
	wantPulled(t, h, o)
}

// With a complete list, exactly its files are downloaded, and nothing else is accepted.
func TestPull_Pinned(t *testing.T) {
	h := newHub(t)
	o := h.options(t)
	o.Only, o.Pins = true, h.sums()
	wantPulled(t, h, o)

	o = h.options(t)
	o.Only, o.Pins = true, models.Sums{"config.json": sumOf("another")}
	pullFails(t, o, "config.json: it has sha256")
	o.Pins = models.Sums{"missing.json": sumOf("")}
	pullFails(t, o, "missing.json: the hub has no such file")
	o.Pins = models.Sums{"../config.json": sumOf("")}
	pullFails(t, o, "not the name of a file")
}

// All files of the default model are pinned, not only the weights.
func TestPull_AllFilesOfTheDefaultModelAreKnown(t *testing.T) {
	t.Parallel()
	revision, sums := models.Known("sentence-transformers/all-MiniLM-L6-v2")
	if len(revision) != 40 {
		t.Errorf("the revision %q may move", revision)
	}
	made, err := models.ReadSums(onnxtest.Model(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, sum := range made { // of the output of tools/fetch-model.sh
		if name != "model.onnx" && name != "README.md" && sums[name] != sum {
			t.Errorf("%s: known as %q, want %s", name, sums[name], sum)
		}
	}
	if sums[weights] == "" {
		t.Error("the weights are not known")
	}
}

// An existing graph is downloaded if there are no weights to make ONNX from.
func TestPull_Graph(t *testing.T) {
	h := newHub(t)
	h.files["config.json"] = `{"model_type": "something_new"}`
	delete(h.files, weights)
	h.files["onnx/model.onnx"], h.files["onnx/model.onnx_data"] = "graph", "weights"
	o := h.options(t)
	wantPulled(t, h, o)

	tiny := onnxtest.Letters(4, 1)
	tiny.External = "weights.bin"
	delete(h.files, "onnx/model.onnx_data")
	h.files["onnx/model.onnx"], h.files["onnx/weights.bin"] = string(tiny.Graph()), string(tiny.Weights())
	o = h.options(t)
	wantPulled(t, h, o)

	delete(h.files, "onnx/weights.bin")
	pullFails(t, h.options(t), "onnx/model.onnx keeps weights in weights.bin, which the hub does not have")
	delete(h.files, "onnx/model.onnx")
	for config, want := range map[string]string{
		`{"model_type": "something_new"}`: "the hub has no onnx/model.onnx, and config.json: model_type is 'something_new'",
		`{"model_type": "bert"}`:          "the hub has no model.safetensors",
	} {
		h.files["config.json"] = config
		_, err := models.Pull(t.Context(), h.options(t))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "optimum-cli export onnx") {
			t.Errorf("%s: got %v", config, err)
		}
	}
}

// A model whose encoder is in a subfolder is refused before large files are downloaded.
func TestPull_EncoderInAFolder(t *testing.T) {
	h := newHub(t)
	h.files["modules.json"] = `[{"path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]`
	delete(h.files, "config.json")
	_, err := models.Pull(t.Context(), h.options(t))
	var unfit *models.UnfitError
	if !errors.As(err, &unfit) || !strings.Contains(err.Error(), `modules.json: its first module, CLIPModel, is in "0_CLIPModel"`) {
		t.Errorf("got %v", err)
	}
}

// An HTML page instead of a file, and a truncated settings file, are detected early and deleted.
func TestPull_AnotherFileThanItIsCalled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, kind, content, want string }{
		{"config.json", "text/html; charset=utf-8", "<html>Log in</html>", "config.json: the hub answers with a web page"},
		{weights, "text/html", "<html>Log in</html>", weights + ": the hub answers with a web page"},
		{"tokenizer.json", "application/json", "<html>Log in</html>", "tokenizer.json: the hub's answer is not valid JSON"},
		{"modules.json", "text/plain", `[{"path": ""}, {"pa`, "modules.json: the hub's answer is not valid JSON"},
	} {
		h := newHub(t)
		h.others = func(w http.ResponseWriter, name string) bool {
			if name != test.name {
				return false
			}
			w.Header().Set("Content-Type", test.kind)
			_, _ = io.WriteString(w, test.content)
			return true
		}
		o := h.options(t)
		_, err := models.Pull(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), test.want) || len(h.asked[test.name]) != 1 {
			t.Errorf("%s: got %v after %d tries, want %q", test.name, err, len(h.asked[test.name]), test.want)
		}
		wantNoParts(t, o.Into)
	}
}

// Weights from which no ONNX can be made are not downloaded, and a graph is, whatever its name.
func TestPull_DecidesBeforeItFetches(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"code of its own": `{"model_type": "bert", "auto_map": {"AutoModel": "other"}}`,
		"other positions": `{"model_type": "bert", "position_embedding_type": "alibi"}`,
		"too large":       `{"model_type": "bert"}`,
		"a reranker":      `{"model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"]}`,
	} {
		h := newHub(t)
		h.files["config.json"], h.files["onnx/model_quantized.onnx"] = config, "graph"
		h.weights = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Length", strconv.Itoa(3<<30))
			return true
		}
		got, err := models.Pull(t.Context(), h.options(t))
		if err != nil || got["onnx/model_quantized.onnx"] == "" || got[weights] != "" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if asked := len(h.asked[weights]); asked > 0 && name != "too large" {
			t.Errorf("%s: the weights were asked for %d times", name, asked)
		}
	}
}

// The weights of query tokens are downloaded with the model, from the folders that its router names.
func TestPull_ARouterAndItsFolders(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	delete(h.files, "1_Pooling/config.json")
	h.files["modules.json"] = `[{"path": "", "type": "sentence_transformers.models.Router"}]`
	h.files["router_config.json"] = `{
		"types": {"": "x.MLMTransformer", "1": "x.SpladePooling", "2": "x.SparseStaticEmbedding"},
		"structure": {"query": ["2"], "document": ["", "1"]}}`
	for _, name := range []string{"1/config.json", "2/config.json", "2/model.safetensors", "2/tokenizer.json"} {
		h.files[name] = "{}"
	}
	o := h.options(t)
	wantPulled(t, h, o)
	delete(h.files, "router_config.json")
	pullFails(t, h.options(t), "router_config.json")
}

func TestPull_EndsWithItsContext(t *testing.T) {
	h := newHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	h.weights = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		return true
	}
	o := h.options(t)
	if _, err := models.Pull(ctx, o); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v", err)
	}
	// The lock is free again, and the rest can be downloaded.
	h.weights = nil
	wantPulled(t, h, o)
}

func TestCheckSource(t *testing.T) {
	pins := models.Sums{"x": sumOf("")}
	for _, test := range []struct {
		o    models.PullOptions
		want string // "": valid
	}{
		{models.PullOptions{Hub: "https://example.com", Name: "author/model"}, ""},
		{models.PullOptions{Hub: "https://example.com/hub/", Name: "model", Revision: "refs/pr/1"}, ""},
		{models.PullOptions{Hub: "http://127.0.0.1:80", Name: "model"}, ""},
		{models.PullOptions{Hub: "http://example.com", Name: "model", Only: true, Pins: pins}, ""},
		{models.PullOptions{Hub: "http://example.com", Name: "model", Pins: pins}, "not encrypted"},
		{models.PullOptions{Hub: "file:///etc", Name: "model"}, "not the URL of a hub"},
		{models.PullOptions{Hub: "https://me:secret@example.com", Name: "model"}, "not the URL of a hub"},
		{models.PullOptions{Hub: "example.com", Name: "model"}, "not the URL of a hub"},
		{models.PullOptions{Hub: "https://example.com", Name: "../../etc"}, "not the name of a model"},
		{models.PullOptions{Hub: "https://example.com", Name: "a/b/c"}, "not the name of a model"},
		{models.PullOptions{Hub: "https://example.com", Name: ".."}, "not the name of a model"},
		{models.PullOptions{Hub: "https://example.com", Name: ""}, "not the name of a model"},
		{models.PullOptions{Hub: "https://example.com", Name: "m", Revision: "../x"}, "not a revision"},
		{models.PullOptions{Hub: "https://example.com", Name: "m", Revision: "a?b"}, "not a revision"},
	} {
		err := models.CheckSource(test.o)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s %s: got %v, want %q", test.o.Hub, test.o.Name, test.o.Revision, err, test.want)
		}
	}
}

// A hub that is reached through TLS must not redirect to plain HTTP.
func TestPull_StaysEncrypted(t *testing.T) {
	plain := newHub(t)
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	o := plain.options(t)
	o.Hub, o.Retries = secure.URL, 1
	o.Client = models.NewClient(secure.Client().Transport)
	pullFails(t, o, "which is not encrypted")
}
