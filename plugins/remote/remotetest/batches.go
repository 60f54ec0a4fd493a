package remotetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Batches are the batch jobs of a server: OpenAI's POST /v1/batches, Mistral's POST /v1/batch/jobs, and those of Voyage
// and Gemini if these are the server's dialects. Set the fields before the first request.
type Batches struct {
	Mistral bool
	// State may set the state of a job. nil or "": a job ends immediately.
	State func(*BatchJob) string
	// Spoil may change the lines of the answers. nil: never.
	Spoil func(j *BatchJob, lines []string) []string

	mu    sync.Mutex
	files map[string][]byte
	jobs  []*BatchJob
}

// BatchJob is a job.
type BatchJob struct {
	N         int // from 1
	Nonce     string
	Cancelled bool
	Lost      bool // the server no longer knows it
	Refused   bool // the server refuses requests for it as invalid
	Asked     int  // how often it was polled
	lines     []batchLine
	input     string
}

type batchLine struct {
	ID     string          `json:"custom_id"`
	Method *string         `json:"method"`
	URL    *string         `json:"url"`
	Body   json.RawMessage `json:"body"`
	text   string
}

// Jobs returns the jobs so far.
func (b *Batches) Jobs() []*BatchJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.jobs)
}

// Texts counts how often each text is in a job.
func (b *Batches) Texts() map[string]int {
	counts := map[string]int{}
	for _, j := range b.Jobs() {
		for i := range j.lines {
			counts[j.lines[i].text]++
		}
	}
	return counts
}

// serveBatches answers a request for files or jobs; it returns false for other requests.
func (s *Server) serveBatches(w http.ResponseWriter, r *http.Request) bool {
	b, root := s.Batches, "/v1/batches"
	if b == nil {
		return false
	}
	if s.Dialect == "gemini" {
		return s.geminiBatches(w, r)
	}
	if b.Mistral {
		root = "/v1/batch/jobs"
	}
	files := r.URL.Path == "/v1/files" || strings.HasPrefix(r.URL.Path, "/v1/files/")
	rest, jobs := strings.CutPrefix(r.URL.Path, root)
	if !files && !jobs {
		return false
	}
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		s.Fail(w, http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided")
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name, cancel := strings.CutSuffix(strings.TrimPrefix(rest, "/"), "/cancel")
	switch {
	case files && r.Method == http.MethodPost:
		s.upload(w, r)
	case files && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/content"):
		s.content(w, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/files/"), "/content"))
	case rest == "" && r.Method == http.MethodPost:
		s.makeJob(w, r)
	case rest == "" && r.Method == http.MethodGet:
		list := []any{}
		for _, j := range slices.Backward(b.jobs) { // the newest first
			if !j.Lost {
				list = append(list, s.jobOf(j))
			}
		}
		if r.URL.Query().Get("after") != "" || r.URL.Query().Get("page") > "0" {
			list = nil
		}
		s.write(w, http.StatusOK, map[string]any{"object": "list", "data": list, "has_more": false})
	default:
		at := slices.IndexFunc(b.jobs, func(j *BatchJob) bool { return j.name() == name && !j.Lost })
		if at < 0 {
			s.Fail(w, http.StatusNotFound, "not_found", "no such batch")
			return true
		}
		if b.jobs[at].Refused {
			s.Fail(w, http.StatusBadRequest, "invalid_request_error", "no id of a batch")
			return true
		}
		b.jobs[at].Cancelled = b.jobs[at].Cancelled || cancel
		b.jobs[at].Asked++
		s.write(w, http.StatusOK, s.jobOf(b.jobs[at]))
	}
	return true
}

// store keeps a file and returns its name.
func (b *Batches) store(prefix string, data []byte) string {
	if b.files == nil {
		b.files = map[string][]byte{}
	}
	name := fmt.Sprint(prefix, len(b.files)+1)
	b.files[name] = data
	return name
}

func (j *BatchJob) name() string { return fmt.Sprintf("batch_%d", j.N) }

func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	file, _, err := r.FormFile("file")
	if err != nil || r.FormValue("purpose") != "batch" {
		s.Fail(w, http.StatusBadRequest, "invalid_request_error", "a file with the purpose batch is wanted")
		return
	}
	data, err := io.ReadAll(file)
	if err != nil {
		s.Fail(w, http.StatusBadRequest, "invalid_request_error", "the file ends early")
		return
	}
	name := s.Batches.store("file-", data)
	s.write(w, http.StatusOK, map[string]any{"id": name, "object": "file", "bytes": len(data), "purpose": "batch"})
}

// makeJob accepts the documented fields only.
func (s *Server) makeJob(w http.ResponseWriter, r *http.Request) {
	b := s.Batches
	var asked struct {
		File     string            `json:"input_file_id"`
		Window   string            `json:"completion_window"`
		Files    []string          `json:"input_files"`
		Model    string            `json:"model"`
		Endpoint string            `json:"endpoint"`
		Metadata map[string]string `json:"metadata"`
		Params   json.RawMessage   `json:"request_params"` // Voyage's: all but the texts
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&asked)
	if b.Mistral && len(asked.Files) == 1 {
		asked.File = asked.Files[0]
	}
	data, known := b.files[asked.File]
	j := &BatchJob{N: len(b.jobs) + 1, input: asked.File}
	voyage := s.Dialect == "voyage"
	if voyage {
		err = errors.Join(err, strictly(asked.Params, &struct {
			Model     string  `json:"model"`
			Type      *string `json:"input_type"`
			Cut       *bool   `json:"truncation"`
			Dimension *int    `json:"output_dimension"`
			DType     *string `json:"output_dtype"`
		}{}), need(asked.Window == "12h", "12h"), need(asked.Params != nil, "request_params"))
		asked.Window = "24h" // as with the others
	}
	for line := range bytes.Lines(data) {
		var l batchLine
		var body requestBody
		if voyage && strictly(line, &struct {
			ID   string `json:"custom_id"`
			Body struct {
				Input []string `json:"input"`
			} `json:"body"`
		}{}) != nil {
			known = false
			break
		}
		if json.Unmarshal(line, &l) != nil || json.Unmarshal(l.Body, &body) != nil ||
			len(body.Input) != 1 || l.ID == "" || len(l.ID) > 64 ||
			!b.Mistral && !voyage && (l.Method == nil || *l.Method != "POST" || l.URL == nil || *l.URL != asked.Endpoint) {
			known = false
			break
		}
		l.text = body.Input[0]
		j.lines = append(j.lines, l)
	}
	if err != nil || !known || len(j.lines) == 0 || asked.Endpoint != "/v1/embeddings" ||
		b.Mistral == (asked.Model == "") || b.Mistral == (asked.Window == "24h") {
		s.Fail(w, http.StatusBadRequest, "invalid_request_error", "that is no job")
		return
	}
	for _, value := range asked.Metadata {
		j.Nonce = value
	}
	b.jobs = append(b.jobs, j)
	s.write(w, http.StatusOK, s.jobOf(j))
}

// jobOf is the server's report of a job.
func (s *Server) jobOf(j *BatchJob) map[string]any {
	b, state := s.Batches, ""
	switch {
	case j.Cancelled:
		state = "cancelled"
	case b.State != nil:
		state = b.State(j)
	}
	told := map[string]any{
		"id": j.name(), "object": "batch", "endpoint": "/v1/embeddings", "metadata": map[string]any{"embedsidecar": j.Nonce},
	}
	ended := state == "" || state == "expired"
	if b.Mistral {
		told["errors"], told["input_files"], told["output_file"] = []any{}, []string{j.input}, nil
		told["status"] = map[string]string{
			"": "SUCCESS", "expired": "TIMEOUT_EXCEEDED", "in_progress": "RUNNING", "failed": "FAILED", "cancelled": "CANCELLED",
		}[state]
		if ended {
			told["output_file"] = "out-" + j.name()
		}
		return told
	}
	told["input_file_id"], told["errors"], told["status"] = j.input, nil, state
	if state == "" {
		told["status"] = "completed"
	}
	if state == "failed" {
		told["errors"] = map[string]any{"object": "list", "data": []any{map[string]any{
			"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": nil,
		}}}
	}
	if ended {
		told["output_file_id"] = "out-" + j.name()
	}
	return told
}

// content writes the output file of a job, not in the order of the requests.
func (s *Server) content(w http.ResponseWriter, name string) {
	b := s.Batches
	at := slices.IndexFunc(b.jobs, func(j *BatchJob) bool { return "out-"+j.name() == name })
	if at < 0 {
		s.Fail(w, http.StatusNotFound, "not_found", "no such file")
		return
	}
	s.lines(w, b.jobs[at])
}

// lines writes the answers of a job.
func (s *Server) lines(w http.ResponseWriter, j *BatchJob) {
	b := s.Batches
	var lines []string
	for i := range slices.Backward(j.lines) {
		lines = append(lines, s.lineOf(&j.lines[i]))
	}
	if b.Spoil != nil {
		lines = b.Spoil(j, lines)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n") // the client may have gone
}

// lineOf is the output line of one request of a job.
func (s *Server) lineOf(l *batchLine) string {
	numbers := lists.Map(s.Vector(l.text, false, s.Dims), func(x float32) any { return x })
	body := s.answer(&Call{
		Texts: []string{l.text}, Numbers: [][]any{numbers}, Index: []any{0}, Base64: s.Dialect != "voyage",
	})
	line := map[string]any{
		"id": "batch_req_" + l.ID, "custom_id": l.ID, "error": nil,
		"response": map[string]any{"status_code": http.StatusOK, "request_id": "req_" + l.ID, "body": body},
	}
	if s.Dialect == "gemini" {
		line = map[string]any{"key": l.ID, "response": map[string]any{"embedding": map[string]any{"values": numbers}}}
	}
	data, err := json.Marshal(line)
	if err != nil {
		panic(err) // numbers and strings alone
	}
	return string(data)
}
