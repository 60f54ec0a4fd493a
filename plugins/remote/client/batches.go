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

// mostPages is how many pages of a hundred jobs are looked at for one.
const mostPages = 20

// only is a place at the one URL that a client with batch jobs has. Its requests are few, and count for nobody.
func (c *Client) only() *lease { return &lease{endpoint: c.pool.endpoints[0], began: time.Now()} }

// SubmitBatch makes a batch job of documents.
func (c *Client) SubmitBatch(ctx context.Context, nonce string, ids, texts []string) (sdk.Job, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	l, path := c.only(), c.o.Dialect.PathOf(c.o.Model)
	path = strings.TrimSuffix(l.url.Path, "/") + path // as the provider sees it
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

// file is what is sent of the requests of a job, and what kind of body that is.
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

// lines writes the requests of a job.
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

// told sends something about batch jobs and returns the answer. Of a wrong one nothing is shown but its code.
func (c *Client) told(ctx context.Context, l *lease, what call, texts []string) ([]byte, *fault) {
	if texts == nil {
		texts = []string{""} // messages about jobs may quote texts that are not at hand
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

// get asks for what is told of a job. One that the provider does not know is not there: another provider, which has
// taken its place at the URL, may call its id wrong.
func (c *Client) get(ctx context.Context, l *lease, job string) (dialect.Told, *fault) {
	t, f := c.readJob(ctx, l, call{method: http.MethodGet, path: c.o.Batches.Jobs + "/" + url.PathEscape(job)})
	if f != nil && slices.Contains([]int{
		http.StatusNotFound, http.StatusGone, http.StatusBadRequest, http.StatusUnprocessableEntity,
	}, f.status) {
		return dialect.Told{Job: embed.Job{State: embed.JobUnknown}}, nil
	}
	return t, f
}

// PollBatch tells of a job.
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

// FetchBatch gives what a job has for texts. Lines that are none are left out, and so is what a broken file lacks.
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
		return sdk.Misconfigured(fmt.Errorf("%s: the batch job has no file of answers", l.name))
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
		c.o.Log.Warn("lines of a batch job's answers are left out: they cannot be read", "url", l.name, "lines", bad)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return sdk.Misconfigured(fmt.Errorf("%s: a line of a batch job's answers is too long", l.name))
	} else if err != nil {
		key, _ := c.o.Key() // it was there a moment ago
		return c.unreached(ctx, l, err, key, []string{""}).call()
	}
	return nil
}

// answerOf is the answer to one text of a batch job.
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

// CancelBatch gives a job up. One that is over, or not there, is left as it is.
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
