package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// subject is one of the programs that run beside the writer. Each has its own database with a table docs; otherwise an
// inactive slot would later read the others' changes.
type subject struct {
	name     string
	pool     *pgxpool.Pool
	start    func(ctx context.Context) *child    // nil: nobody
	caughtUp func(ctx context.Context, c *child) // waits until it has processed what is committed now
	end      syscall.Signal
	vectors  string                      // SQL: rows with their vectors; "": it writes none
	of       func(text string) []float32 // the vector of a text
	fresh    string                      // SQL: the xmin of the vector's row
}

// Rows of docs with their vectors, by destination, and the transactions that wrote these.
const (
	tableVectors = `SELECT d.id, d.body, e.embedding FROM public.docs AS d FULL JOIN public.docs_embedding AS e USING (id)
		ORDER BY id`
	columnVectors = "SELECT id, body, embedding FROM public.docs ORDER BY id"
	tableFresh    = "SELECT d.changed_at, e.xmin FROM public.docs AS d JOIN public.docs_embedding AS e USING (id)"
	columnFresh   = "SELECT d.changed_at, d.xmin FROM public.docs AS d"
)

// newSubject makes a subject on a database with a table docs.
func (p *place) newSubject(ctx context.Context, name string, pool *pgxpool.Pool) *subject {
	s := &subject{name: name, pool: pool, end: syscall.SIGTERM, vectors: tableVectors, fresh: tableFresh, of: fakeVector}
	switch name {
	case nobody:
		s.vectors = ""
	case recvlogical:
		s.vectors = ""
		p.makeReceiver(ctx, s)
	case notifyGo, notifyPython:
		p.makeNotified(ctx, s)
	case usTable:
		p.makeOurs(s, fake...)
	case usColumn:
		s.vectors, s.fresh = columnVectors, columnFresh
		p.makeOurs(s, append(fake, "--into", "embedding")...)
	}
	return s
}

// begin starts it, and returns when it is idle.
func (s *subject) begin(ctx context.Context) *child {
	c := s.start(ctx)
	s.caughtUp(ctx, c)
	return c
}

func (p *place) makeOurs(s *subject, flags ...string) {
	s.start = func(context.Context) *child { return p.sidecar(s.pool, flags...) }
	s.caughtUp = func(ctx context.Context, c *child) { settle(ctx, c, s.pool) }
}

// makeReceiver makes pg_recvlogical with the same output plugin and a similar publication: the lower bound for every
// reader of the WAL.
func (p *place) makeReceiver(ctx context.Context, s *subject) {
	database := named(s.pool)
	slot := "floor_" + database
	s.end = syscall.SIGINT // as its manual says
	s.start = func(ctx context.Context) *child {
		c := p.start(p.libpq(database), filepath.Join(p.pg.Bin(), "pg_recvlogical"), "--start", "--dbname="+database,
			"--slot="+slot, "--no-loop", "--option=proto_version=1", "--option=publication_names=sidecar",
			"--file="+os.DevNull, "--fsync-interval=0", "--status-interval=1")
		c.until(ctx, s.pool, 5*time.Millisecond, slotActive, slot)
		return c
	}
	s.caughtUp = func(ctx context.Context, c *child) {
		lsn := value[string](ctx, s.pool, "SELECT pg_current_wal_flush_lsn()::text")
		c.until(ctx, s.pool, 10*time.Millisecond, `SELECT EXISTS (SELECT FROM pg_stat_replication AS r
			JOIN pg_replication_slots AS s ON s.active_pid = r.pid
			WHERE s.slot_name = $1 AND r.sent_lsn >= $2::text::pg_lsn)`, slot, lsn)
	}
	execute(ctx, s.pool, `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_publication) THEN
			CREATE PUBLICATION sidecar FOR TABLE public.docs; END IF; END $$`,
		"SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
}

// makeNotified makes a minimal alternative for comparison: a trigger with NOTIFY, and a worker program that listens,
// reads the row and writes the vector. It loses notifications while it does not run, and slows down the user's commits.
// It does not see existing rows, so they are changed while it listens.
func (p *place) makeNotified(ctx context.Context, s *subject) {
	program := []string{filepath.Join(p.bin, "bench-notify")}
	if s.name == notifyPython {
		program, s.of = []string{p.python, filepath.Join(p.bin, "..", "bench", "notify", "worker.py")}, simpleVector
	}
	environ := append(slices.Clip(p.environ), "DATABASE_URL="+p.pg.URL(named(s.pool), "")+"&application_name=toy")
	s.start = func(ctx context.Context) *child {
		c := p.start(environ, program[0], program[1:]...)
		c.until(ctx, s.pool, 50*time.Millisecond, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'toy' AND state = 'idle' AND query ILIKE 'LISTEN%')`)
		return c
	}
	s.caughtUp = func(ctx context.Context, c *child) {
		c.until(ctx, s.pool, 50*time.Millisecond, `SELECT NOT EXISTS (SELECT FROM public.docs AS d
			LEFT JOIN public.docs_embedding AS e USING (id)
			WHERE e.text_hash IS DISTINCT FROM sha256(convert_to(d.body, 'UTF8')))`)
	}
	execute(ctx, s.pool,
		`CREATE TABLE public.docs_embedding (id bigint PRIMARY KEY, text_hash bytea NOT NULL,
			embedding public.vector(384) NOT NULL)`,
		`CREATE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('toy', NEW.id::text);
			RETURN NULL; END $$`,
		`CREATE TRIGGER tell AFTER INSERT OR UPDATE OF body ON public.docs FOR EACH ROW EXECUTE FUNCTION public.tell()`)
	c := s.start(ctx)
	execute(ctx, s.pool, "UPDATE public.docs SET body = body || '.'")
	s.caughtUp(ctx, c)
	c.stop(s.end)
}

func fakeVector(text string) []float32 { return vector.Of(text, vector.DefaultDims) }

// simpleVector is the Python worker's vector of a text.
func simpleVector(text string) []float32 {
	sum := sha256.Sum256([]byte(text))
	v := make([]float32, vector.DefaultDims)
	for i := range v {
		v[i] = float32(sum[i%len(sum)])
	}
	return v
}

var errNotTrue = errors.New("a benchmark of vectors that are not true would be worth nothing")

// oracle checks that every row has the vector of its text, and that no vector lacks its row. The subject must have
// caught up.
func (s *subject) oracle(ctx context.Context) {
	if s.vectors == "" {
		return
	}
	var (
		id                             *int64
		body                           *string
		embedding                      *pgvector.Vector
		seen, missing, orphans, differ int
	)
	rows, _ := s.pool.Query(ctx, s.vectors)
	_, err := pgx.ForEachRow(rows, []any{&id, &body, &embedding}, func() error {
		seen++
		switch {
		case body == nil:
			orphans++
		case embedding == nil:
			missing++
		case !slices.Equal(embedding.Slice(), s.of(*body)):
			differ++
		}
		return nil
	})
	check(wrap.Errorf(err, "read the vectors"))
	if seen == 0 || missing+orphans+differ > 0 {
		check(fmt.Errorf("%w: of %d rows %d have no vector and %d that of another text; %d vectors have no row",
			errNotTrue, seen, missing, differ, orphans))
	}
}

// Flags of `embedsidecar run` that say which embedder to use.
var (
	fake = []string{"--plugin", "fake"}
	onnx = []string{"--plugin", "onnx"}
)

const slotActive = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)"

// slotOf is the slot of a database's sidecar.
func slotOf(pool *pgxpool.Pool) string { return "slot_" + named(pool) }

// sidecar runs `embedsidecar run` with a pipeline that embeds public.docs (body) into the table docs_embedding, unless
// flags say otherwise.
func (p *place) sidecar(pool *pgxpool.Pool, flags ...string) *child {
	if !slices.Contains(flags, "--config") {
		flags = append([]string{"--table", "public.docs", "--columns", "body"}, flags...)
		if !slices.Contains(flags, "--into") {
			flags = append(flags, "--into-table", "docs_embedding")
		}
	}
	return p.start(p.sidecarEnviron(pool), filepath.Join(p.bin, "embedsidecar"),
		append([]string{"run", "--slot", slotOf(pool), "--set", "publication.name=sidecar"}, flags...)...)
}

func (p *place) sidecarEnviron(pool *pgxpool.Pool) []string {
	return append(slices.Clip(p.environ), "EMBEDSIDECAR_DATABASE_URL="+p.pg.URL(named(pool), ""))
}

// streams waits until the sidecar reads its slot. Before that it sets up its schema, which other readers would block.
func streams(ctx context.Context, c *child, pool *pgxpool.Pool) {
	c.until(ctx, pool, 5*time.Millisecond, slotActive, slotOf(pool))
}

// settle waits until everything committed now is processed.
func settle(ctx context.Context, c *child, pool *pgxpool.Pool) {
	streams(ctx, c, pool)
	c.until(ctx, pool, 5*time.Millisecond, "SELECT EXISTS (SELECT FROM embedsidecar.pipeline)")
	c.until(ctx, pool, 0, "CALL embedsidecar.wait_until(timeout => '5 s')")
	if n := value[int](ctx, pool, "SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'"); n > 0 {
		check(c.failed("%d rows were not embedded", n))
	}
}

// decoded waits until everything committed now is queued, or needs no task. It requests the position, because an idle
// streamer does not write it by itself.
func decoded(ctx context.Context, c *child, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lsn := value[string](ctx, pool, "SELECT pg_current_wal_insert_lsn()::text")
	for {
		execute(ctx, pool, "NOTIFY embedsidecar_waiting, '"+lsn+"'")
		second, end := context.WithTimeout(ctx, time.Second)
		err := try(func() {
			c.until(second, pool, 5*time.Millisecond,
				"SELECT coalesce(bool_and(lsn >= $1::text::pg_lsn), false) FROM embedsidecar.lsn_checkpoint", lsn)
		})
		waited := second.Err() != nil
		end()
		if err == nil {
			return
		}
		if ctx.Err() != nil || !waited {
			check(err)
		}
	}
}

// worked waits until no task is left and a number of rows have been processed since a time, and returns when that was.
// It polls rarely, because a scan of a busy queue's dead tuples is expensive.
func worked(ctx context.Context, c *child, pool *pgxpool.Pool, since time.Time, rows int) time.Time {
	const shortest, longest, perRow = 5 * time.Millisecond, 50 * time.Millisecond, 5 * time.Microsecond
	streams(ctx, c, pool)
	return c.until(ctx, pool, min(max(time.Duration(rows)*perRow, shortest), longest),
		`SELECT CASE WHEN EXISTS (SELECT FROM embedsidecar.task) THEN false
			ELSE (SELECT count(*) FROM embedsidecar.ledger WHERE written_at > $1) >= $2 END`, since, rows)
}

// serverTime is the server's time.
func serverTime(ctx context.Context, pool *pgxpool.Pool) time.Time {
	return value[time.Time](ctx, pool, "SELECT clock_timestamp()")
}

// verified runs `embedsidecar verify`, which also embeds a sample again, because the benchmark does not know the real
// model's vectors. Then it ends the sidecar.
func (p *place) verified(ctx context.Context, c *child, pool *pgxpool.Pool) {
	settle(ctx, c, pool)
	args := append([]string{"verify", "--slot", slotOf(pool), "--set", "publication.name=sidecar", "--deep", "50"},
		onnx...)
	err := try(func() { output(ctx, p.sidecarEnviron(pool), filepath.Join(p.bin, "embedsidecar"), args...) })
	if err != nil {
		check(fmt.Errorf("%w: %w", errNotTrue, err))
	}
	c.stop(syscall.SIGTERM)
}

func (p *place) serverCPU() time.Duration { return cpuTime(p.pg.PID()) }
