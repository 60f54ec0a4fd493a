package dialect

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Batches describes a provider's batch jobs: upload a file of requests, make a job of it, download a file of answers.
// Its functions are pure.
type Batches struct {
	Name    string
	Dialect string // of its requests
	// Jobs, Files and Make are paths below the URL: of the list of jobs, of files, and for making a job. {model} in
	// Make is the model.
	Jobs, Files, Make string
	// Pages is the query string of a page of the list, with {after} and {page} in it.
	Pages string
	// Cancel is appended to a job's path, and Content to a file's. Up and Down precede the URL's own path for uploads
	// and downloads.
	Cancel, Content, Up, Down string
	// Related: files are uploaded as multipart/related, not as a form.
	Related bool
	// one is a line of the file of requests; job is the request that makes a job.
	one func(id, path string, body map[string]json.RawMessage) map[string]any
	job func(j NewJob) map[string]any
	// states are the final states of jobs; true: there may be results.
	states map[string]bool
}

// NewJob describes a new job. Body is the request for one text.
type NewJob struct {
	File, Model, Path, Nonce string
	Body                     map[string]json.RawMessage
}

// AllBatches are the supported APIs for batch jobs.
func AllBatches() []*Batches {
	return []*Batches{&openAIBatches, &mistralBatches, &voyageBatches, &geminiBatches}
}

// openAIBatches is OpenAI's POST /v1/batches.
var openAIBatches = Batches{
	Name: "openai", Dialect: "openai", Jobs: "/batches", Make: "/batches", Files: "/files",
	Pages: "limit=100&after={after}", Cancel: "/cancel", Content: "/content",
	one: func(id, path string, body map[string]json.RawMessage) map[string]any {
		return map[string]any{"custom_id": id, "method": "POST", "url": path, "body": body}
	},
	job: func(j NewJob) map[string]any {
		return map[string]any{
			"input_file_id": j.File, "endpoint": j.Path, "completion_window": "24h", "metadata": j.metadata(),
		}
	},
	states: map[string]bool{"completed": true, "expired": true, "cancelled": true, "failed": false},
}

// mistralBatches is Mistral's POST /v1/batch/jobs.
var mistralBatches = Batches{
	Name: "mistral", Dialect: "openai", Jobs: "/batch/jobs", Make: "/batch/jobs", Files: "/files",
	Pages: "page_size=100&page={page}", Cancel: "/cancel", Content: "/content",
	one: func(id, _ string, body map[string]json.RawMessage) map[string]any {
		return map[string]any{"custom_id": id, "body": body}
	},
	job: func(j NewJob) map[string]any {
		return map[string]any{
			"input_files": []string{j.File}, "endpoint": j.Path, "model": j.Model, "metadata": j.metadata(),
		}
	},
	states: map[string]bool{"SUCCESS": true, "TIMEOUT_EXCEEDED": true, "CANCELLED": true, "FAILED": false},
}

// voyageBatches is Voyage AI's POST /v1/batches. The job holds all parameters; the file holds only the texts.
var voyageBatches = Batches{
	Name: "voyage", Dialect: "voyage", Jobs: "/batches", Make: "/batches", Files: "/files",
	Pages: "limit=100&after={after}", Cancel: "/cancel", Content: "/content",
	one: func(id, _ string, body map[string]json.RawMessage) map[string]any {
		return map[string]any{"custom_id": id, "body": map[string]any{"input": body["input"]}}
	},
	job: func(j NewJob) map[string]any {
		delete(j.Body, "input")
		delete(j.Body, "encoding_format") // output files are documented with plain numbers only
		return map[string]any{
			"input_file_id": j.File, "endpoint": j.Path, "completion_window": "12h", "request_params": j.Body,
			"metadata": j.metadata(),
		}
	},
	states: map[string]bool{"completed": true, "cancelled": true, "failed": false},
}

// geminiBatches is POST :asyncBatchEmbedContent of the Gemini API.
var geminiBatches = Batches{
	Name: "gemini", Dialect: "gemini", Jobs: "/batches", Make: "/models/{model}:asyncBatchEmbedContent", Files: "/files",
	Pages: "pageSize=100&pageToken={after}", Cancel: ":cancel", Content: ":download", Up: "/upload", Down: "/download",
	Related: true,
	one: func(id, _ string, body map[string]json.RawMessage) map[string]any {
		var one []json.RawMessage
		_ = json.Unmarshal(body["requests"], &one) // this package wrote it
		return map[string]any{"key": id, "request": one[0]}
	},
	job: func(j NewJob) map[string]any {
		return map[string]any{"batch": map[string]any{
			"displayName": nonceKey + " " + j.Nonce, "inputConfig": map[string]any{"fileName": "files/" + j.File},
		}}
	},
	states: map[string]bool{
		"BATCH_STATE_SUCCEEDED": true, "BATCH_STATE_EXPIRED": true, "BATCH_STATE_CANCELLED": true,
		"BATCH_STATE_FAILED": false,
	},
}

// nonceKey is the property of a job that holds its nonce.
const nonceKey = "embedsidecar"

func (j *NewJob) metadata() map[string]string { return map[string]string{nonceKey: j.Nonce} }

// Line is the request for one text, as a line of the file.
func (b *Batches) Line(id, path string, body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	return json.Marshal(b.one(id, path, fields))
}

// Job is the request for a job; body is that for one text.
func (b *Batches) Job(j NewJob, body []byte) ([]byte, error) {
	if err := json.Unmarshal(body, &j.Body); err != nil {
		return nil, err
	}
	return json.Marshal(b.job(j))
}

// batchJob is a job in the providers' answers; Gemini's is an operation.
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

	Name     string `json:"name"`
	Response struct {
		geminiOutput

		Output geminiOutput `json:"output"`
	} `json:"response"`
}

type geminiOutput struct {
	File string `json:"responsesFile"`
}

// gemini reads the fields that Gemini has in other places.
func (j *batchJob) gemini() {
	var output geminiOutput
	if raw, err := json.Marshal(j.Metadata["output"]); err == nil {
		_ = json.Unmarshal(raw, &output) // anything else is no file
	}
	j.ID = strings.TrimPrefix(j.Name, "batches/")
	j.Status, _ = j.Metadata["state"].(string)
	name, _ := j.Metadata["displayName"].(string)
	j.Metadata = map[string]any{nonceKey: strings.TrimPrefix(name, nonceKey+" ")}
	j.OpenAI = strings.TrimPrefix(cmp.Or(j.Response.File, j.Response.Output.File, output.File), "files/")
}

// UnmarshalJSON implements json.Unmarshaler. It ignores Mistral's errors, which are a list.
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
	if err == nil {
		err = json.Unmarshal(data, (*plain)(j))
	}
	if err == nil && j.Name != "" {
		j.gemini()
	}
	return err
}

// Told is a provider's report of a job.
type Told struct {
	embed.Job
	Nonce string
	File  string // of its answers; "": none
}

func (b *Batches) told(j *batchJob) Told {
	t := Told{Job: embed.Job{ID: j.ID, State: embed.JobRunning}, File: j.OpenAI + j.Mistral}
	t.Nonce, _ = j.Metadata[nonceKey].(string) // without a nonce the job is not ours
	results, over := b.states[j.Status]
	switch {
	case !over:
		return t
	case results && t.File != "":
		t.State = embed.JobEnded
	default:
		t.State = embed.JobFailed
	}
	t.Message = strings.TrimPrefix(strings.ToLower(j.Status), "batch_state_")
	if t.Message == "succeeded" || t.Message == "completed" || t.Message == "success" {
		t.Message = ""
		if t.File == "" {
			t.Message = "every_text_failed"
		}
	}
	if len(j.Errors.Data) > 0 && names.MatchString(j.Errors.Data[0].Code) { // messages may quote texts
		t.Message = strings.TrimPrefix(t.Message+": "+j.Errors.Data[0].Code, ": ")
	}
	return t
}

// ReadJob reads a provider's report of a job.
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

// ReadJobs reads a page of the list of jobs; last is the cursor of the next page.
func (b *Batches) ReadJobs(body []byte) (list []Told, last string, err error) {
	var page struct {
		Data       []batchJob `json:"data"`
		Operations []batchJob `json:"operations"`
		Next       string     `json:"nextPageToken"`
	}
	if err := read(body, &page); err != nil {
		return nil, "", err
	}
	page.Data = append(page.Data, page.Operations...)
	for i := range page.Data {
		last = page.Data[i].ID
		list = append(list, b.told(&page.Data[i]))
	}
	if b.Related {
		last = page.Next
	}
	return list, last, nil
}

// ReadFile reads the name of an uploaded file.
func ReadFile(body []byte) (string, error) {
	var file struct {
		ID   string `json:"id"`
		File struct {
			Name string `json:"name"`
		} `json:"file"`
	}
	err := read(body, &file)
	name := cmp.Or(file.ID, strings.TrimPrefix(file.File.Name, "files/"))
	if err == nil && name == "" {
		err = errJSON
	}
	return name, err
}

// Line is a line of an output file.
type Line struct {
	ID     string
	Status int // of the answer to this text
	Body   []byte
}

// ReadLine reads a line; ok is false if it is invalid.
func ReadLine(data []byte) (l Line, ok bool) {
	var line struct {
		ID       string `json:"custom_id"`
		Key      string `json:"key"` // Gemini's name
		Response *struct {
			Status    int             `json:"status_code"`
			Body      json.RawMessage `json:"body"`
			Embedding json.RawMessage `json:"embedding"`
		} `json:"response"`
	}
	if json.Unmarshal(data, &line) != nil || line.ID+line.Key == "" {
		return Line{}, false
	}
	l.ID = cmp.Or(line.ID, line.Key)
	if r := line.Response; r != nil {
		l.Status, l.Body = r.Status, r.Body
		if r.Embedding != nil {
			l.Status, l.Body = http.StatusOK, slices.Concat([]byte(`{"embeddings":[`), r.Embedding, []byte("]}"))
		}
	}
	return l, true
}
