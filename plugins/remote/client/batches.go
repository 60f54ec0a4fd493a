package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// mostPages is how many pages of a hundred jobs are searched for a job.
const mostPages = 20

// only is a lease of the single URL that a client with batch jobs has. The few requests for batch jobs bypass the pool.
func (c *Client) only() *lease { return &lease{endpoint: c.pool.endpoints[0], began: time.Now()} }

// SubmitBatch makes a batch job of documents.
func (c *Client) SubmitBatch(ctx context.Context, nonce string, ids, texts []string) (sdk.Job, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	l, path := c.only(), c.o.Dialect.PathOf(c.o.Model)
	path = strings.TrimSuffix(l.url.Path, "/") + path // the provider's full path
	file, kind, err := c.file(nonce, path, ids, texts)
	if err != nil {
		return sdk.Job{}, fmt.Errorf("write the requests of a batch job: %w", err)
	}
	up := call{method: http.MethodPost, before: c.o.Batches.Up, path: c.o.Batches.Files, kind: kind, body: file}
	if c.o.Batches.Related {
		up.query = "uploadType=multipart"
	}
	answer, f := c.told(ctx, l, up, texts)
	if f != nil {
		return sdk.Job{}, f.call()
	}
	name, err := dialect.ReadFile(answer)
	if err != nil {
		return sdk.Job{}, sdk.Again(fmt.Errorf("%s: %w", l.name, err), 0)
	}
	sample, err := c.body(false, "", []string{"-"})
	if err != nil {
		return sdk.Job{}, err
	}
	body, err := c.o.Batches.Job(dialect.NewJob{File: name, Model: c.o.Model, Path: path, Nonce: nonce}, sample)
	if err != nil {
		return sdk.Job{}, err
	}
	return c.job(ctx, l, call{
		method: http.MethodPost, path: strings.ReplaceAll(c.o.Batches.Make, "{model}", c.o.Model), kind: "application/json",
		body: body,
	})
}

// file returns the upload with the requests of a job, and its content type.
func (c *Client) file(nonce, path string, ids, texts []string) (data []byte, kind string, err error) {
	var (
		b     bytes.Buffer
		lines io.Writer
	)
	form := multipart.NewWriter(&b)
	if c.o.Batches.Related {
		kind = "multipart/related; boundary=" + form.Boundary()
		about, failed := form.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/json"}})
		if err = failed; err == nil {
			_, err = fmt.Fprintf(about, `{"file":{"displayName":"embedsidecar %s","mimeType":"application/jsonl"}}`, nonce)
		}
		if err == nil {
			lines, err = form.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/jsonl"}})
		}
	} else {
		kind = form.FormDataContentType()
		if err = form.WriteField("purpose", "batch"); err == nil {
			lines, err = form.CreateFormFile("file", "embedsidecar.jsonl")
		}
	}
	if err == nil {
		err = c.lines(lines, path, ids, texts)
	}
	err = errors.Join(err, form.Close())
	return b.Bytes(), kind, err
}

// lines writes the requests of a job, one a line.
func (c *Client) lines(w io.Writer, path string, ids, texts []string) error {
	for i, text := range texts {
		body, err := c.body(false, "", []string{c.o.Prefixes[0] + text})
		if err != nil {
			return err
		}
		line, err := c.o.Batches.Line(ids[i], path, body)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// told sends a request about batch jobs and returns the answer. An error shows only the code of the answer.
func (c *Client) told(ctx context.Context, l *lease, what call, texts []string) ([]byte, *fault) {
	if texts == nil {
		texts = []string{""} // messages about jobs may quote texts that are unknown here
	}
	resp, after, f := c.send(ctx, l, what, texts)
	if f != nil {
		f.after = max(f.after, after)
		return nil, f
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or it is not wanted
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	if err != nil {
		key, _ := c.o.Key() // it was there a moment ago
		return nil, c.unreached(ctx, l, err, key, texts)
	}
	return data, nil
}

func (c *Client) job(ctx context.Context, l *lease, what call) (sdk.Job, error) {
	t, f := c.readJob(ctx, l, what)
	if f != nil {
		return sdk.Job{}, f.call()
	}
	return t.Job, nil
}

func (c *Client) readJob(ctx context.Context, l *lease, what call) (dialect.Told, *fault) {
	answer, f := c.told(ctx, l, what, nil)
	if f != nil {
		return dialect.Told{}, f
	}
	t, err := c.o.Batches.ReadJob(answer)
	if err != nil {
		return t, &fault{class: dialect.Broken, err: fmt.Errorf("%s: %w", l.name, err)}
	}
	return t, nil
}

// get reads the state of a job. A job that the provider does not know, or whose id it calls invalid, does not exist:
// the URL may now belong to another provider.
func (c *Client) get(ctx context.Context, l *lease, job string) (dialect.Told, *fault) {
	t, f := c.readJob(ctx, l, call{method: http.MethodGet, path: c.o.Batches.Jobs + "/" + url.PathEscape(job)})
	if f != nil && slices.Contains([]int{
		http.StatusNotFound, http.StatusGone, http.StatusBadRequest, http.StatusUnprocessableEntity,
	}, f.status) {
		return dialect.Told{Job: embed.Job{State: embed.JobUnknown}}, nil
	}
	return t, f
}

// PollBatch returns the state of a job.
func (c *Client) PollBatch(ctx context.Context, nonce, job string) (sdk.Job, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	l := c.only()
	if job != "" {
		t, f := c.get(ctx, l, job)
		if f != nil {
			return sdk.Job{}, f.call()
		}
		return t.Job, nil
	}
	after := ""
	for page := range mostPages {
		query := strings.NewReplacer("{after}", url.QueryEscape(after), "{page}", strconv.Itoa(page)).
			Replace(c.o.Batches.Pages)
		answer, f := c.told(ctx, l, call{
			method: http.MethodGet, path: c.o.Batches.Jobs,
			query: strings.TrimSuffix(query, "&after="),
		}, nil)
		if f != nil {
			return sdk.Job{}, f.call()
		}
		list, last, err := c.o.Batches.ReadJobs(answer)
		if err != nil {
			return sdk.Job{}, sdk.Again(fmt.Errorf("%s: %w", l.name, err), 0)
		}
		for i := range list {
			if list[i].Nonce == nonce && list[i].ID != "" {
				return list[i].Job, nil
			}
		}
		if last == "" || last == after {
			break
		}
		after = last
	}
	return sdk.Job{State: embed.JobUnknown}, nil
}

// FetchBatch passes on the results of a job. It skips lines that it cannot read.
func (c *Client) FetchBatch(ctx context.Context, job string, give func(id string, a sdk.Answer) error) error {
	ctx, cancel := early(ctx)
	defer cancel()
	l := c.only()
	m, err := c.Describe(ctx)
	if err != nil {
		return err
	}
	t, f := c.get(ctx, l, job)
	switch {
	case f != nil:
		return f.call()
	case t.File == "":
		return sdk.Misconfigured(fmt.Errorf("%s: the batch job has no output file", l.name))
	}
	down := call{
		method: http.MethodGet, before: c.o.Batches.Down,
		path: c.o.Batches.Files + "/" + url.PathEscape(t.File) + c.o.Batches.Content,
	}
	if c.o.Batches.Related {
		down.query = "alt=media"
	}
	resp, after, f := c.send(ctx, l, down, []string{""})
	if f != nil {
		f.after = max(f.after, after)
		return f.call()
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or the rest is not wanted
	width := m.Dims
	if c.o.DimsBy == ByCut {
		width = 16000
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, width*numberBytes+bodySlack)
	bad := 0
	for lines.Scan() {
		line, ok := dialect.ReadLine(lines.Bytes())
		if !ok {
			bad++
			continue
		}
		if err := give(line.ID, c.answerOf(line, m.Dims)); err != nil {
			return err
		}
	}
	if bad > 0 {
		c.o.Log.Warn("skipping unreadable lines of a batch job's output", "url", l.name, "lines", bad)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return sdk.Misconfigured(fmt.Errorf("%s: a line of a batch job's output is too long", l.name))
	} else if err != nil {
		key, _ := c.o.Key() // it was there a moment ago
		return c.unreached(ctx, l, err, key, []string{""}).call()
	}
	return nil
}

// answerOf converts one line of a batch job's output.
func (c *Client) answerOf(line dialect.Line, dims int) sdk.Answer {
	failed := func(format string, args ...any) sdk.Answer {
		return sdk.Answer{Err: &sdk.TextError{Class: sdk.Invalid, Message: fmt.Sprintf(format, args...)}}
	}
	if line.Status != http.StatusOK {
		return failed("the batch job answered %d to this text", line.Status)
	}
	a, err := c.o.Dialect.Decode(line.Body, 1)
	if err != nil {
		return failed("%s", err)
	}
	v, err := c.accept(a.Vectors[0], dims)
	if err != nil {
		return failed("%s", err)
	}
	return sdk.Answer{Vector: v, Tokens: a.Tokens}
}

// CancelBatch cancels a job. It does nothing if the job has ended or does not exist.
func (c *Client) CancelBatch(ctx context.Context, job string) error {
	ctx, cancel := early(ctx)
	defer cancel()
	l := c.only()
	_, f := c.told(ctx, l, call{
		method: http.MethodPost, path: c.o.Batches.Jobs + "/" + url.PathEscape(job) + c.o.Batches.Cancel,
	}, nil)
	if f == nil || slices.Contains([]int{http.StatusNotFound, http.StatusConflict, http.StatusBadRequest}, f.status) {
		return nil
	}
	return f.call()
}
