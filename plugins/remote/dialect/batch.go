package dialect

import (
	"encoding/json"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Batches is how a provider takes batch jobs: a file of requests goes up, a job is made of it, and a file of answers
// comes down. Its functions are pure.
type Batches struct {
	Name string
	// Jobs is where jobs are made and listed, below the URL; Files is where files are.
	Jobs, Files string
	// Pages is the query of a page of the list, with {after} and {page} in it.
	Pages string
	// one is the line of a request, besides its id and its body; job is what makes a job.
	one func(path string) map[string]any
	job func(file, model, path, nonce string) map[string]any
	// states are those of jobs that are over: true: there may be results.
	states map[string]bool
}

// AllBatches are the ways of making batch jobs.
func AllBatches() []*Batches { return []*Batches{&openAIBatches, &mistralBatches} }

// openAIBatches is OpenAI's POST /v1/batches.
var openAIBatches = Batches{
	Name: "openai", Jobs: "/batches", Files: "/files", Pages: "limit=100&after={after}",
	one: func(path string) map[string]any { return map[string]any{"method": "POST", "url": path} },
	job: func(file, _, path, nonce string) map[string]any {
		return map[string]any{
			"input_file_id": file, "endpoint": path, "completion_window": "24h", "metadata": map[string]string{nonceKey: nonce},
		}
	},
	states: map[string]bool{"completed": true, "expired": true, "cancelled": true, "failed": false},
}

// mistralBatches is Mistral's POST /v1/batch/jobs.
var mistralBatches = Batches{
	Name: "mistral", Jobs: "/batch/jobs", Files: "/files", Pages: "page_size=100&page={page}",
	one: func(string) map[string]any { return map[string]any{} },
	job: func(file, model, path, nonce string) map[string]any {
		return map[string]any{
			"input_files": []string{file}, "endpoint": path, "model": model, "metadata": map[string]string{nonceKey: nonce},
		}
	},
	states: map[string]bool{"SUCCESS": true, "TIMEOUT_EXCEEDED": true, "CANCELLED": true, "FAILED": false},
}

// nonceKey is the property of a job that tells it from others.
const nonceKey = "embedsidecar"

// Line is the request for one text as a line of a file.
func (b *Batches) Line(id, path string, body json.RawMessage) ([]byte, error) {
	line := b.one(path)
	line["custom_id"], line["body"] = id, body
	return json.Marshal(line)
}

// Make is the request for a job.
func (b *Batches) Make(file, model, path, nonce string) ([]byte, error) {
	return json.Marshal(b.job(file, model, path, nonce))
}

// batchJob is a job as either provider tells of it.
type batchJob struct {
	ID       string         `json:"id"`
	Status   string         `json:"status"`
	Metadata map[string]any `json:"metadata"`
	OpenAI   string         `json:"output_file_id"`
	Mistral  string         `json:"output_file"`
	Errors   struct {
		Data []struct {
			Code string `json:"code"`
		} `json:"data"`
	} `json:"errors"`
}

// UnmarshalJSON implements json.Unmarshaler: the errors of Mistral are a list, which is not read.
func (j *batchJob) UnmarshalJSON(data []byte) error {
	type plain batchJob
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	if strings.HasPrefix(string(all["errors"]), "[") {
		delete(all, "errors")
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, (*plain)(j))
}

// Told is what a provider tells of a job.
type Told struct {
	embed.Job
	Nonce string
	File  string // of its answers; "": there is none
}

func (b *Batches) told(j *batchJob) Told {
	t := Told{Job: embed.Job{ID: j.ID, State: embed.JobRunning}, File: j.OpenAI + j.Mistral}
	t.Nonce, _ = j.Metadata[nonceKey].(string) // what is none is another's
	results, over := b.states[j.Status]
	switch {
	case !over:
		return t
	case results && t.File != "":
		t.State = embed.JobEnded
	default:
		t.State = embed.JobFailed
	}
	if t.Message = strings.ToLower(j.Status); t.Message == "completed" || t.Message == "success" {
		t.Message = ""
		if t.File == "" {
			t.Message = "every_text_failed"
		}
	}
	if len(j.Errors.Data) > 0 && names.MatchString(j.Errors.Data[0].Code) { // messages may quote texts
		t.Message += ": " + j.Errors.Data[0].Code
	}
	return t
}

// ReadJob reads what is told of a job.
func (b *Batches) ReadJob(body []byte) (Told, error) {
	var j batchJob
	if err := read(body, &j); err != nil {
		return Told{}, err
	}
	if j.ID == "" || j.Status == "" {
		return Told{}, errJSON
	}
	return b.told(&j), nil
}

// ReadJobs reads a page of the list of jobs; last is the name of the last one there.
func (b *Batches) ReadJobs(body []byte) (list []Told, last string, err error) {
	var page struct {
		Data []batchJob `json:"data"`
	}
	if err := read(body, &page); err != nil {
		return nil, "", err
	}
	for i := range page.Data {
		last = page.Data[i].ID
		list = append(list, b.told(&page.Data[i]))
	}
	return list, last, nil
}

// ReadFile reads the name of a file that went up.
func ReadFile(body []byte) (string, error) {
	var file struct {
		ID string `json:"id"`
	}
	err := read(body, &file)
	if err == nil && file.ID == "" {
		err = errJSON
	}
	return file.ID, err
}

// Line is a line of a file of answers.
type Line struct {
	ID     string
	Status int // of the answer to this text
	Body   []byte
}

// ReadLine reads one; ok: it is one.
func ReadLine(data []byte) (l Line, ok bool) {
	var line struct {
		ID       string `json:"custom_id"`
		Response *struct {
			Status int             `json:"status_code"`
			Body   json.RawMessage `json:"body"`
		} `json:"response"`
	}
	if json.Unmarshal(data, &line) != nil || line.ID == "" {
		return Line{}, false
	}
	l.ID = line.ID
	if line.Response != nil {
		l.Status, l.Body = line.Response.Status, line.Response.Body
	}
	return l, true
}
