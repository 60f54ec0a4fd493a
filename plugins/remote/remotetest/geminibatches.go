package remotetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// geminiBatches answers a request for files or jobs of the Gemini API; it returns false for other requests.
func (s *Server) geminiBatches(w http.ResponseWriter, r *http.Request) bool {
	b := s.Batches
	name, ofJob := strings.CutPrefix(r.URL.Path, "/v1beta/batches")
	model, makes := strings.CutSuffix(r.URL.Path, ":asyncBatchEmbedContent")
	up := r.URL.Path == "/upload/v1beta/files" && r.URL.Query().Get("uploadType") == "multipart"
	file, down := strings.CutPrefix(r.URL.Path, "/download/v1beta/files/")
	if !ofJob && !makes && !up && !down {
		return false
	}
	if s.Key != "" && r.Header.Get("X-Goog-Api-Key") != s.Key {
		s.Fail(w, http.StatusForbidden, "PERMISSION_DENIED", "the API key is not valid")
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id, cancel := strings.CutSuffix(strings.TrimPrefix(name, "/"), ":cancel")
	at := slices.IndexFunc(b.jobs, func(j *BatchJob) bool {
		return !j.Lost && (j.name() == id || "out-"+j.name()+":download" == file)
	})
	switch {
	case up:
		if err := s.geminiUpload(w, r); err != nil {
			s.Fail(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
		}
	case makes:
		if err := s.geminiJob(w, r, strings.TrimPrefix(model, "/v1beta/")); err != nil {
			s.Fail(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
		}
	case name == "":
		list := []any{}
		for _, j := range slices.Backward(b.jobs) {
			if !j.Lost && r.URL.Query().Get("pageToken") == "" {
				list = append(list, s.operation(j))
			}
		}
		s.write(w, http.StatusOK, map[string]any{"operations": list})
	case at < 0:
		s.Fail(w, http.StatusNotFound, "NOT_FOUND", "it is not there")
	case down:
		s.lines(w, b.jobs[at])
	case cancel:
		b.jobs[at].Cancelled = true
		s.write(w, http.StatusOK, map[string]any{})
	default:
		b.jobs[at].Asked++
		s.write(w, http.StatusOK, s.operation(b.jobs[at]))
	}
	return true
}

// geminiUpload accepts a file's metadata and the file.
func (s *Server) geminiUpload(w http.ResponseWriter, r *http.Request) error {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/related" {
		return errors.New("expected multipart/related")
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	about, err := parts.NextPart()
	if err != nil {
		return err
	}
	told, err := io.ReadAll(about)
	var file struct {
		File struct {
			Name *string `json:"displayName"`
			Type string  `json:"mimeType"`
		} `json:"file"`
	}
	err = errors.Join(err, strictly(told, &file), need(file.File.Type == "application/jsonl", "application/jsonl"))
	if err != nil {
		return err
	}
	content, err := parts.NextPart()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	name := s.Batches.store("files/in-", data)
	s.write(w, http.StatusOK, map[string]any{"file": map[string]any{"name": name, "state": "ACTIVE"}})
	return nil
}

// geminiJob accepts the documented fields only.
func (s *Server) geminiJob(w http.ResponseWriter, r *http.Request, model string) error {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Batch struct {
			Name  string `json:"displayName"`
			Input struct {
				File string `json:"fileName"`
			} `json:"inputConfig"`
		} `json:"batch"`
	}
	if err = errors.Join(err, strictly(body, &asked)); err != nil {
		return err
	}
	data, known := s.Batches.files[asked.Batch.Input.File]
	j := &BatchJob{N: len(s.Batches.jobs) + 1, input: asked.Batch.Input.File}
	j.Nonce = strings.TrimPrefix(asked.Batch.Name, "embedsidecar ")
	err = need(known && asked.Batch.Name != "", "a name and a file")
	for line := range bytes.Lines(data) {
		var l struct {
			Key     string          `json:"key"`
			Request json.RawMessage `json:"request"`
		}
		var g geminiBody
		err = errors.Join(err, strictly(line, &l))
		err = errors.Join(err, strictly(slices.Concat([]byte(`{"requests":[`), l.Request, []byte("]}")), &g))
		if err != nil {
			return err
		}
		one := g.Requests[0]
		err = need(one.Model == model && len(one.Content.Parts) == 1 && l.Key != "", "the job's model, a text and a key")
		j.lines = append(j.lines, batchLine{ID: l.Key, text: one.Content.Parts[0].Text})
	}
	if err != nil {
		return err
	}
	s.Batches.jobs = append(s.Batches.jobs, j)
	s.write(w, http.StatusOK, s.operation(j))
	return nil
}

// operation is the server's report of a job.
func (s *Server) operation(j *BatchJob) map[string]any {
	state := map[string]any{
		"@type": "type.googleapis.com/google.ai.generativelanguage.v1main.EmbedContentBatch", "model": "models/m",
		"name": "batches/" + j.name(), "displayName": "embedsidecar " + j.Nonce, "state": "BATCH_STATE_SUCCEEDED",
		"batchStats": map[string]any{"requestCount": fmt.Sprint(len(j.lines))},
	}
	told := map[string]any{"name": "batches/" + j.name(), "metadata": state, "done": true}
	is := ""
	if s.Batches.State != nil {
		is = s.Batches.State(j)
	}
	switch {
	case j.Cancelled:
		state["state"] = "BATCH_STATE_CANCELLED"
	case is == "in_progress":
		state["state"] = "BATCH_STATE_RUNNING"
		delete(told, "done")
	case is == "failed":
		state["state"] = "BATCH_STATE_FAILED"
		told["error"] = map[string]any{"code": 3, "message": "a text was not understood"}
	default:
		out := map[string]any{"responsesFile": "files/out-" + j.name()}
		state["output"] = out
		told["response"] = map[string]any{"@type": "type.googleapis.com/AsyncBatchEmbedContentResponse", "output": out}
	}
	return told
}
