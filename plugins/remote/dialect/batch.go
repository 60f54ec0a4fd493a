package dialect

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Batches is how a provider takes batch jobs: a file of requests goes up, a job is made of it, and a file of answers
// comes down. Its functions are pure.
type Batches struct {
	Name    string
	Dialect string // of its requests
	// Jobs is where jobs are listed, below the URL, and Files where files are; {model} in Make is the model.
	Jobs, Files, Make string
	// Pages is the query of a page of the list, with {after} and {page} in it.
	Pages string
	// Cancel follows a job, and Content a file. Up and Down go before the URL's own path when files go up and come down.
	Cancel, Content, Up, Down string
	// Related: a file goes up beside what is told of it, and not in a form.
	Related bool
	// one is the line of a request; job is what makes a job.
	one func(id, path string, body map[string]json.RawMessage) map[string]any
	job func(j NewJob) map[string]any
	// states are those of jobs that are over: true: there may be results.
	states map[string]bool
}

// NewJob is what a job is made of. Body is the request for one text.
type NewJob struct {
	File, Model, Path, Nonce string
	Body                     map[string]json.RawMessage
}

// AllBatches are the ways of making batch jobs.
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

// voyageBatches is Voyage AI's POST /v1/batches. All but the texts stands in the job.
var voyageBatches = Batches{
	Name: "voyage", Dialect: "voyage", Jobs: "/batches", Make: "/batches", Files: "/files",
	Pages: "limit=100&after={after}", Cancel: "/cancel", Content: "/content",
	one: func(id, _ string, body map[string]json.RawMessage) map[string]any {
		return map[string]any{"custom_id": id, "body": map[string]any{"input": body["input"]}}
	},
	job: func(j NewJob) map[string]any {
		delete(j.Body, "input")
		delete(j.Body, "encoding_format") // files of answers are described with numbers alone
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
		_ = json.Unmarshal(body["requests"], &one) // it was written here
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

// nonceKey is the property of a job that tells it from others.
const nonceKey = "embedsidecar"

func (j *NewJob) metadata() map[string]string { return map[string]string{nonceKey: j.Nonce} }

// Line is the request for one text as a line of a file.
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

// batchJob is a job as providers tell of it; Gemini's is an operation.
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

// gemini reads what stands in other places there.
func (j *batchJob) gemini() {
	var output geminiOutput
	if raw, err := json.Marshal(j.Metadata["output"]); err == nil {
		_ = json.Unmarshal(raw, &output) // what is none is no file
	}
	j.ID = strings.TrimPrefix(j.Name, "batches/")
	j.Status, _ = j.Metadata["state"].(string)
	name, _ := j.Metadata["displayName"].(string)
	j.Metadata = map[string]any{nonceKey: strings.TrimPrefix(name, nonceKey+" ")}
	j.OpenAI = strings.TrimPrefix(cmp.Or(j.Response.File, j.Response.Output.File, output.File), "files/")
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
	if err == nil {
		err = json.Unmarshal(data, (*plain)(j))
	}
	if err == nil && j.Name != "" {
		j.gemini()
	}
	return err
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

// ReadJobs reads a page of the list of jobs; last is what the next page is asked for with.
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

// ReadFile reads the name of a file that went up.
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
		Key      string `json:"key"` // Gemini's name of it
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
