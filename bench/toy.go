package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// toy is the least that could do our work, for comparison: a trigger that notifies, and a worker that listens, reads
// the row and writes the vector, a program of its own as ours is. It forgets what it was told while it does not run,
// and slows the user's commits down.
type toy struct {
	c    *child
	pool *pgxpool.Pool
}

// prepareToy makes the toy's table and trigger.
func prepareToy(ctx context.Context, pool *pgxpool.Pool) error {
	for _, sql := range []string{
		`CREATE TABLE public.docs_embedding (id bigint PRIMARY KEY, text_hash bytea NOT NULL,
			embedding public.vector(384) NOT NULL)`,
		`CREATE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('toy', NEW.id::text);
			RETURN NULL; END $$`,
		`CREATE TRIGGER tell AFTER INSERT OR UPDATE OF body ON public.docs FOR EACH ROW EXECUTE FUNCTION public.tell()`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the toy's table and trigger: %w", err)
		}
	}
	return nil
}

func (p *place) goToy() []string { return []string{filepath.Join(p.bin, "bench-notify")} }

func (p *place) pythonToy() []string {
	return []string{p.python, filepath.Join(filepath.Dir(p.bin), "bench", "notify", "worker.py")}
}

// simpleVector is what the worker in Python writes for a text.
func simpleVector(text string) []float32 {
	sum := sha256.Sum256([]byte(text))
	v := make([]float32, vector.DefaultDims)
	for i := range v {
		v[i] = float32(sum[i%len(sum)])
	}
	return v
}

// startToy starts a worker, which listens when this returns.
func (p *place) startToy(ctx context.Context, pool *pgxpool.Pool, program []string) (*toy, error) {
	name := pool.Config().ConnConfig.Database
	cmd := exec.Command(program[0], program[1:]...) //nolint:noctx // it is ended in order, by end
	cmd.Env = append(slices.Clip(p.environ), "DATABASE_URL="+p.pg.URL(name, "")+"&application_name=toy")
	c, err := start(cmd, p.log("toy-"+name))
	if err != nil {
		return nil, err
	}
	t := &toy{c: c, pool: pool}
	return t, t.until(ctx, "listens", `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'toy' AND state = 'idle' AND query ILIKE 'LISTEN%')`)
}

// caughtUp waits until every row has the vector of its text.
func (t *toy) caughtUp(ctx context.Context) error {
	return t.until(ctx, "has caught up", `SELECT NOT EXISTS (SELECT FROM public.docs AS d LEFT
		JOIN public.docs_embedding AS e
		USING (id) WHERE e.text_hash IS DISTINCT FROM sha256(convert_to(d.body, 'UTF8')))`)
}

func (t *toy) until(ctx context.Context, what, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		var done bool
		if err := t.pool.QueryRow(ctx, sql).Scan(&done); err != nil {
			return fmt.Errorf("wait until the toy %s: %w: %s", what, err, t.c.tail())
		}
		if done {
			return nil
		}
		if err := t.c.alive(); err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until the toy %s: %w: %s", what, err, t.c.tail())
		}
	}
}

func (t *toy) end() error { return t.c.end() }
