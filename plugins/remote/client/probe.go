package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/replace"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
)

// probeText is sent before the first real text, to each URL and after each failure of one: it reports whether the
// server works, how wide its vectors are, and whether they are those of the same model as before.
const probeText = "A lighthouse keeper writes the weather into a book every evening."

const (
	// likeness is the least (embed.Description) between two vectors of the probe. Providers' numbers vary a little;
	// models differ a lot.
	likeness = 0.98
	// freshness is for how long a good answer proves that the server works.
	freshness = 5 * time.Second
)

// good notes an answer that could be believed.
func (c *Client) good() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worked = time.Now()
}

// works tells, by a probe if need be, whether requests are answered at all now. nil: they are.
func (c *Client) works(ctx context.Context, since time.Time) *fault {
	c.mu.Lock()
	recent := c.worked.After(since) || c.canary != nil && time.Since(c.worked) < freshness
	c.mu.Unlock()
	if recent {
		return nil
	}
	return c.tries(ctx, func(l *lease) *fault {
		f := c.probe(ctx, l)
		if f == nil {
			c.pool.release(l, answered, 0)
		}
		return f
	})
}

// tries asks any URL something, several times if need be. ask gives the lease back.
func (c *Client) tries(ctx context.Context, ask func(l *lease) *fault) (f *fault) {
	for range maxTries {
		l, err := c.pool.acquire(ctx, true, nil)
		if err != nil {
			return c.noPlace(err, f)
		}
		if f = ask(l); f == nil || ctx.Err() != nil ||
			f.class != dialect.Overloaded && f.class != dialect.Down && f.class != dialect.Broken {
			return f
		}
	}
	return f
}

// probe asks one URL for the vector of the probe text and compares it with what it should be. The lease is released
// when something is wrong.
func (c *Client) probe(ctx context.Context, l *lease) *fault {
	a, asked, f := c.request(ctx, l, false, c.probeQuery(), []string{c.o.Prefixes[0] + probeText}, c.o.Dims)
	if f != nil {
		c.pool.release(l, outcomeOf(ctx, f), asked)
		return f
	}
	v, err := c.accept(a.Vectors[0], c.o.Dims)
	if err == nil {
		err = c.compare(v)
	}
	if err != nil {
		c.pool.release(l, unfit, 0)
		c.o.Log.ErrorContext(ctx, "url refused", "url", l.name, "error", err)
		return &fault{class: dialect.Misconfigured, err: fmt.Errorf("%s: %w", l.name, err)}
	}
	c.pool.prove(l)
	c.good()
	return nil
}

// probeQuery is what a reranker is asked with the probe.
func (c *Client) probeQuery() string {
	if c.o.Dialect.Reranks {
		return probeText
	}
	return ""
}

// compare keeps the first vector of the probe, of this run or of the file, and compares the others with it.
func (c *Client) compare(v []float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.canary == nil && c.o.Remembered != "" {
		known, err := recall(c.o.Remembered)
		if err != nil {
			return err
		}
		if known == nil {
			if err := remember(c.o.Remembered, v); err != nil {
				return err
			}
		}
		c.canary = known
	}
	if c.canary == nil || c.o.Dialect.Reranks { // of one number nothing can be told
		c.canary = v
		return nil
	}
	about := embed.Description{Sparse: c.o.Dialect.Sparse}
	if !about.Sparse && len(v) != len(c.canary) {
		return &widthError{got: len(v), want: len(c.canary)}
	}
	if like := about.Likeness(v, c.canary); !(like >= likeness) {
		where := "another URL"
		if c.o.Remembered != "" {
			where = c.o.Remembered
		}
		return fmt.Errorf("the probe's vector has a likeness of %.3f to that of %s: this is another model, or the same with other settings. "+
			"Vectors of two models must not mix: give a new model a new name and pipeline", like, where)
	}
	return nil
}

// recall reads a remembered vector; nil: there is none yet.
func recall(path string) ([]float32, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the remembered probe: %w", err)
	}
	var v []float32
	if json.Unmarshal(data, &v) != nil || len(v) == 0 {
		return nil, fmt.Errorf("read the remembered probe: %s is not a list of numbers: remove it to probe again", path)
	}
	return v, nil
}

// remember writes a vector, all or nothing.
func remember(path string, v []float32) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = replace.File(path, data, 0o600)
	}
	return wrap.Errorf(err, "remember the probe")
}

// info asks what the servers run.
func (c *Client) info(ctx context.Context) (info dialect.Info, f *fault) {
	f = c.tries(ctx, func(l *lease) *fault {
		body, asked, f := c.exchange(ctx, l, http.MethodGet, c.o.Dialect.InfoPath, nil, maxErrorBody, nil)
		if f == nil {
			var err error
			if info, err = dialect.ReadInfo(body); err == nil {
				c.pool.release(l, neutral, 0)
				return nil
			}
			f = &fault{class: dialect.Broken, err: fmt.Errorf("%s%s: %w", l.name, c.o.Dialect.InfoPath, err)}
		}
		c.pool.release(l, outcomeOf(ctx, f), asked)
		return f
	})
	return info, f
}
