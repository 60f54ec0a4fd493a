package jobs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// errMoved means that another sidecar has taken the job.
var errMoved = errors.New("another sidecar has the batch job")

// Gather implements worker.Jobs.
func (j *Jobs) Gather(batch *pgx.Batch, keys []string) {
	batch.Queue(sqlfiles.Query("gather_keys"), pgx.StrictNamedArgs{
		"pipeline_id": j.o.Pipeline.ID, "row_keys": keys, "nonce": nonce(),
	})
}

// Open implements worker.Jobs.
func (j *Jobs) Open(ctx context.Context) (jobs, under int, gathered int64, err error) {
	err = j.o.DB.QueryRow(ctx, sqlfiles.Query("gathered"), pgx.StrictNamedArgs{"pipeline_id": j.o.Pipeline.ID}).
		Scan(&jobs, &under, &gathered)
	return jobs, under, gathered, wrap.Errorf(err, "count batch jobs")
}

// Close implements worker.Jobs.
func (j *Jobs) Close(ctx context.Context) error {
	_, err := j.o.DB.Exec(ctx, sqlfiles.Query("close_job"), pgx.StrictNamedArgs{
		"pipeline_id": j.o.Pipeline.ID, "over": j.o.Pipeline.Batch.Rows(),
	})
	if err != nil {
		return fmt.Errorf("close a batch job: %w", err)
	}
	return failpoint.Hit("jobs/closed")
}

// Known implements worker.Jobs.
func (j *Jobs) Known(ctx context.Context, hashes [][]byte) (map[[32]byte][]float32, error) {
	found, err := j.o.DB.Query(ctx, sqlfiles.Query("batched_texts"), pgx.StrictNamedArgs{
		"pipeline_id": j.o.Pipeline.ID, "text_hashes": hashes,
	})
	if err != nil {
		return nil, err
	}
	known := map[[32]byte][]float32{}
	var hash, vector []byte
	_, err = pgx.ForEachRow(found, []any{&hash, &vector}, func() error {
		numbers := make([]float32, len(vector)/4) //nolint:mnd // bytes of a number
		for i := range numbers {
			numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(vector[4*i:]))
		}
		known[[32]byte(hash)] = numbers
		return nil
	})
	return known, err
}

// take returns a job that is due, or nil.
func (j *Jobs) take(ctx context.Context) (*job, error) {
	b := &job{}
	err := j.o.DB.QueryRow(ctx, sqlfiles.Query("take_job"), pgx.StrictNamedArgs{
		"pipeline_id": j.o.Pipeline.ID, "worker_id": j.o.ID,
	}).Scan(&b.id, &b.state, &b.nonce, &b.provider, &b.texts, &b.tokens, &b.hold, &b.tries, &b.age)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for batch jobs: %w", err)
	}
	return b, nil
}

// leave gives up the jobs of this sidecar. If that fails, others take them when it has ended.
func (j *Jobs) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), idle)
	defer cancel()
	if _, err := j.o.DB.Exec(ctx, `UPDATE embedsidecar.batch_job SET worker_id = NULL
		WHERE pipeline_id = $1 AND worker_id = $2`, j.o.Pipeline.ID, j.o.ID); err != nil {
		j.o.Log.DebugContext(ctx, "batch jobs stay with this sidecar", "pipeline", j.o.Pipeline.Name, "error", err)
	}
}

// change is a change of a job's row.
type change struct {
	to       string
	pause    time.Duration
	tries    int
	provider string // "": unchanged
	message  string // why it waits; "": none (an ended job keeps its message)
	texts    *texts
	price    *float64
	hold     *int64
	tokens   *int64
}

func (j *Jobs) args(b *job, c change) pgx.StrictNamedArgs {
	args := pgx.StrictNamedArgs{
		"job_id": b.id, "nonce": b.nonce, "worker_id": j.o.ID, "from": b.state, "to": c.to,
		"pause": c.pause.Seconds(), "tries": c.tries,
		"provider_id": database.Given(c.provider), "message": database.Given(j.storable(c.message)), "price": c.price, "hold": c.hold,
		"texts": nil, "tokens": c.tokens,
	}
	if c.texts != nil {
		args["texts"], args["tokens"] = len(c.texts.list), c.texts.tokens
	}
	return args
}

// move applies one change to a job.
func (j *Jobs) move(ctx context.Context, b *job, c change) error {
	tag, err := j.o.DB.Exec(ctx, sqlfiles.Query("move_job"), j.args(b, c))
	return j.moved(b, c, tag, err)
}

func (j *Jobs) moved(b *job, c change, tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("update a batch job: %w", err)
	case tag.RowsAffected() == 0:
		return errMoved
	}
	b.state = c.to
	return nil
}

// settle applies a change that also settles the job's budget hold.
func (j *Jobs) settle(ctx context.Context, b *job, c change, tokens *int64) error {
	c.tokens = tokens
	was := *b
	return database.Transact(ctx, j.o.DB, func(tx pgx.Tx) error {
		*b = was
		tag, err := tx.Exec(ctx, sqlfiles.Query("move_job"), j.args(b, c))
		if err := j.moved(b, c, tag, err); err != nil {
			return err
		}
		if c.to == "closed" {
			if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.batch_text WHERE job_id = $1", b.id); err != nil {
				return fmt.Errorf("reset a batch job: %w", err)
			}
		}
		if b.hold == nil {
			return nil
		}
		_, err = tx.Exec(ctx, "SELECT embedsidecar.settle_budget($1, $2)", *b.hold, tokens)
		return err
	})
}

// mostLeft is the remaining budget if there is none.
const mostLeft = math.MaxInt64

// budgetLeft returns how many tokens a job may use. held: calls in progress are expected to use some of the rest.
func (j *Jobs) budgetLeft(ctx context.Context) (left int64, held bool, err error) {
	p := j.o.Pipeline
	if p.Budget.None() && p.ModelBudget.None() {
		return mostLeft, false, nil
	}
	var found, without *float64
	err = j.o.DB.QueryRow(ctx, `SELECT min(l.tokens) FILTER (WHERE l.held), min(l.tokens) FILTER (WHERE NOT l.held)
		FROM (SELECT h.held, least(b.tokens - b.tokens_spent, b.tokens_per_day - b.tokens_today,
				(b.money - b.money_spent) * 1e6 / nullif($2::double precision, 0),
				(b.money_per_day - b.money_today) * 1e6 / nullif($2::double precision, 0)) AS tokens
			FROM (VALUES (true), (false)) AS h (held) CROSS JOIN LATERAL embedsidecar.budgets($1, h.held) AS b) AS l`,
		p.ID, j.o.Price.Batch).Scan(&found, &without)
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("check the budget: %w", err)
	case found == nil || without == nil:
		return mostLeft, false, nil
	}
	return int64(max(*found, 0)), *found < *without, nil
}

// keys returns a page of the job's rows without a task, those with a task of their own, and the last key.
func (j *Jobs) keys(ctx context.Context, b *job, after *string) (keys, busy []string, last *string, err error) {
	found, err := j.o.DB.Query(ctx, sqlfiles.Query("job_keys"), pgx.StrictNamedArgs{
		"job_id": b.id, "after": after, "max": rows.PageRows,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the rows of a batch job: %w", err)
	}
	var (
		key  string
		task bool
	)
	_, err = pgx.ForEachRow(found, []any{&key, &task}, func() error {
		last = new(key)
		if task {
			busy = append(busy, key)
		} else {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, busy, last, err
}

// write records what is about to be submitted and reserves its budget.
func (j *Jobs) write(ctx context.Context, b *job, t *texts, plain []string, last *string) (*texts, error) {
	was := *b
	waits := false
	err := database.Transact(ctx, j.o.DB, func(tx pgx.Tx) error {
		*b, waits = was, false
		p, c := j.o.Pipeline, change{to: "submitting", pause: idle, tries: b.tries * round, texts: t, price: &j.o.Price.Batch}
		if !p.Budget.None() || !p.ModelBudget.None() {
			var reason *string
			err := tx.QueryRow(ctx, `SELECT hold, reason FROM embedsidecar.hold_budget($1, 0, $2, $3, $4, false, 'infinity')`,
				p.ID, t.tokens, t.most, j.o.Price.Batch).Scan(&c.hold, &reason)
			if err != nil {
				return fmt.Errorf("check the budget: %w", err)
			}
			if waits = reason != nil; waits {
				c = change{to: b.state, pause: longest, message: *reason}
			}
		}
		tag, err := tx.Exec(ctx, sqlfiles.Query("move_job"), j.args(b, c))
		if err := j.moved(b, c, tag, err); err != nil || waits {
			return err
		}
		b.hold = c.hold
		for _, part := range []struct {
			state string
			keys  []string
			after *string
		}{{"ended", plain, nil}, {"closed", nil, last}} {
			if len(part.keys) == 0 && part.after == nil {
				continue
			}
			if err := split(ctx, tx, b, part.state, part.keys, part.after); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO embedsidecar.batch_text (job_id, text_hash) SELECT $1, unnest($2::bytea[])`, b.id,
			t.hashes)
		return wrap.Errorf(err, "store a batch job")
	})
	if err != nil || waits {
		return nil, err
	}
	b.tries *= round
	return t, nil
}

// asked returns the hashes of a job's texts by their provider IDs.
func (j *Jobs) asked(ctx context.Context, b *job) (map[string][]byte, error) {
	found, err := j.o.DB.Query(ctx, `SELECT text_hash FROM embedsidecar.batch_text WHERE job_id = $1`, b.id)
	if err != nil {
		return nil, fmt.Errorf("read the texts of a batch job: %w", err)
	}
	asked := make(map[string][]byte, b.texts)
	var hash []byte
	_, err = pgx.ForEachRow(found, []any{&hash}, func() error { asked[nameOf(hash)] = hash; return nil })
	return asked, err
}

// results are some results of a job.
type results struct{ hashes, vectors [][]byte }

func (r *results) add(hash []byte, vector []float32) {
	raw := make([]byte, 0, 4*len(vector)) //nolint:mnd // bytes of a number
	for _, x := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	r.hashes, r.vectors = append(r.hashes, hash), append(r.vectors, raw)
}

// store stores results. Storing them twice is harmless.
func (j *Jobs) store(ctx context.Context, b *job, some *results) error {
	var ours bool
	err := j.o.DB.QueryRow(ctx, `WITH job AS MATERIALIZED (
			SELECT j.job_id FROM embedsidecar.batch_job AS j WHERE j.job_id = $1 AND j.nonce = $4 FOR KEY SHARE
		), stored AS (
			UPDATE embedsidecar.batch_text AS t SET vector = r.vector
			FROM job, unnest($2::bytea[], $3::bytea[]) AS r (hash, vector)
			WHERE t.job_id = job.job_id AND t.text_hash = r.hash)
		SELECT EXISTS (SELECT FROM job)`, b.id, some.hashes, some.vectors, b.nonce).Scan(&ours)
	*some = results{}
	if err != nil {
		return fmt.Errorf("store results of a batch job: %w", err)
	}
	if !ours {
		return errMoved
	}
	return failpoint.Hit("jobs/stored")
}

// releaseSome turns some rows of a job into tasks.
func (j *Jobs) releaseSome(ctx context.Context, b *job) (n int, err error) {
	err = database.Transact(ctx, j.o.DB, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, sqlfiles.Query("release_keys"), pgx.StrictNamedArgs{
			"job_id": b.id, "nonce": b.nonce, "max": rows.PageRows,
		})
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(found, pgx.RowTo[string])
		if n = len(keys); err != nil || n == 0 {
			return err
		}
		batch := &pgx.Batch{}
		queue.QueueLocally(batch)
		queue.QueueAdd(batch, j.o.Pipeline.ID, pipeline.Low, keys, false)
		batch.Queue("COMMIT AND CHAIN") // the stream may wait for these locks
		return tx.SendBatch(ctx, batch).Close()
	})
	return n, wrap.Errorf(err, "make tasks of a batch job")
}

// drop deletes a job if its rows are done.
func (j *Jobs) drop(ctx context.Context, b *job) (gone bool, err error) {
	err = j.o.DB.QueryRow(ctx, sqlfiles.Query("drop_job"), pgx.StrictNamedArgs{
		"job_id": b.id, "nonce": b.nonce,
	}).Scan(&gone)
	return gone, wrap.Errorf(err, "delete a batch job")
}

// split moves rows into a new job: the given keys, or those after a key.
func split(ctx context.Context, tx pgx.Tx, b *job, state string, keys []string, after *string) error {
	_, err := tx.Exec(ctx, sqlfiles.Query("split_job"), pgx.StrictNamedArgs{
		"job_id": b.id, "state": state, "row_keys": keys, "after": after, "nonce": nonce(),
	})
	return wrap.Errorf(err, "split a batch job")
}

// exceeds postpones a job whose next row exceeds the budget. If the budget will not have more room for it (waits is
// false), the row is taken out of the job, to be embedded in the usual way.
func (j *Jobs) exceeds(ctx context.Context, b *job, key string, waits bool) error {
	return database.Transact(ctx, j.o.DB, func(tx pgx.Tx) error {
		c := change{to: b.state, pause: longest, message: "the budget leaves no room"}
		tag, err := tx.Exec(ctx, sqlfiles.Query("move_job"), j.args(b, c))
		if err := j.moved(b, c, tag, err); err != nil || waits {
			return err
		}
		return split(ctx, tx, b, "ended", []string{key}, nil)
	})
}
