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

// probeText is sent to each URL before its first real text and after each failure. It shows whether the server works,
// how wide its vectors are, and whether the model is still the same.
const probeText = "A lighthouse keeper writes the weather into a book every evening."

const (
	// likeness is the least likeness (embed.Description) of two vectors of the probe. A provider's numbers vary a
	// little; different models differ a lot.
	likeness = 0.98
	// freshness is how long a good answer proves that the server works.
	freshness = 5 * time.Second
)

// good records a valid answer.
func (c *Client) good() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worked = time.Now()
}

// works checks, if necessary with a probe, whether requests are answered. nil: they are.
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

// tries calls ask with any URL, with retries. ask releases the lease.
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

// probe gets the vector of the probe text from one URL and compares it with the known one. On an error it releases the
// lease.
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

// probeQuery is the query of a reranker's probe.
func (c *Client) probeQuery() string {
	if c.o.Dialect.Reranks {
		return probeText
	}
	return ""
}

// compare keeps the probe's first vector, of this run or from the file, and compares later ones with it.
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
	if c.canary == nil || c.o.Dialect.Reranks { // a single score shows nothing
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
		return fmt.Errorf("the probe's vector has a likeness of %.3f to that of %s: the model or its settings have changed. "+
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

// remember writes a vector atomically.
func remember(path string, v []float32) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = replace.File(path, data, 0o600)
	}
	return wrap.Errorf(err, "remember the probe")
}

// info reads the servers' description of their model.
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
