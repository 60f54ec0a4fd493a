//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

const (
	dims  = 8
	short = time.Second // the shortest lease that the program takes: what a kill leaves behind is due again soon
	batch = 64
	loops = 2

	// waitTimeout is how long the tests wait for anything. How long it takes says more of the machine than of the program.
	waitTimeout = 10 * time.Minute
)

// rig is a database with pipelines, set up by the tables' owner and worked by processes of the least-privileged role.
type rig struct {
	t         *testing.T
	db        *testenv.Database
	slot      string
	role      string
	url       string
	stream    string        // of the role that streams; "": url
	dir       string        // of logs and configuration
	calls     string        // file with the plugin's calls
	lease     time.Duration // of run; 0: short
	also      []string      // further variables of every process
	pipelines []pipeline.Pipeline
	started   int
}

// newRig sets pipelines up with `embedsidecar init`.
func newRig(t *testing.T, db *testenv.Database, specs ...pipeline.Spec) *rig {
	t.Helper()
	r := &rig{t: t, db: db, slot: db.SlotName(), dir: t.TempDir()}
	r.calls = filepath.Join(r.dir, "calls")
	r.url = r.login(testenv.Owner)
	r.setUp(nil, "--config", r.config(specs))
	r.senderTimeout("3s") // so that a feedback each second is part of what is tested
	r.becomeRunRole()
	return r
}

// setUp runs init until it ends well. A slot waits for the transactions of all tests on its server, and init gives up
// after a minute, as it does where it gets no lock: then it begins again.
func (r *rig) setUp(environ []string, args ...string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		c := r.start(environ, append([]string{"init"}, args...)...)
		s := c.wait(waitTimeout)
		if s.ExitStatus() != 0 && !c.said("the server waits for every open transaction") && !c.said("no lock within") {
			r.t.Fatalf("init ended with %v:\n%s", c.cmd.ProcessState, c.tail())
		}
		return s.ExitStatus() == 0, c.tail()
	})
}

// senderTimeout sets for how long the server waits for a sign of life from a sidecar that starts to stream from now on.
func (r *rig) senderTimeout(span string) {
	r.t.Helper()
	r.db.MustExecSuper(fmt.Sprintf("ALTER DATABASE %s SET wal_sender_timeout = '%s'", pgx.Identifier{r.db.Name}.Sanitize(),
		span))
}

// becomeRunRole loads the pipelines that are set up, and logs in as a role that may run them and nothing else from
// now on.
func (r *rig) becomeRunRole() {
	r.t.Helper()
	pool, err := database.Connect(r.t.Context(), r.url, database.Options{MaxConns: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	defer pool.Close()
	if r.pipelines, err = resolve.Load(r.t.Context(), pool, r.slot); err != nil {
		r.t.Fatal(err)
	}
	r.role = r.db.RunRole(r.pipelines...)
	r.url, r.stream = r.login(r.role), r.login(r.db.StreamRole())
}

// login is the URL of a role, for programs that wait for a server as long as it takes.
func (r *rig) login(role string) string { return r.db.URL(role) + "&connect_timeout=300" }

// newShapes makes the workload's tables with a pipeline for each.
func newShapes(t *testing.T, major int, names ...string) (*rig, []workload.Shape) {
	t.Helper()
	return newShapesOn(t, testenv.Shared(t, major), names...)
}

// newShapesOn is newShapes on a certain server.
func newShapesOn(t *testing.T, server *testenv.Server, names ...string) (*rig, []workload.Shape) {
	t.Helper()
	db := testenv.DB(t, testenv.On(server), testenv.Empty())
	wanted := workload.Shapes(dims)
	if len(names) > 0 {
		wanted = workload.Named(slices.Concat(wanted, workload.Chunked(dims), workload.Joined(dims)), names...)
	}
	shapes, err := workload.Create(t.Context(), db, wanted)
	if err != nil {
		t.Fatal(err)
	}
	specs := make([]pipeline.Spec, len(shapes))
	for i, shape := range shapes {
		specs[i] = shape.Spec()
	}
	return newRig(t, db, specs...), shapes
}

// config writes pipelines as a file for --config; JSON is YAML, too.
func (r *rig) config(specs []pipeline.Spec) string {
	r.t.Helper()
	list := make([]map[string]any, len(specs))
	for i, s := range specs {
		list[i] = inFile(s)
	}
	body, err := json.Marshal(map[string]any{"pipelines": list})
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, "pipelines.yaml")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// inFile is a pipeline as files and requests have it.
func inFile(s pipeline.Spec) map[string]any {
	quote := func(names ...string) string { return pgx.Identifier(names).Sanitize() }
	entry := map[string]any{"name": s.Name, "table": quote(s.Schema, s.Table)}
	if s.Plugin != "" {
		entry["plugin"] = s.Plugin
	}
	columns := make([]string, len(s.Columns))
	for i, c := range s.Columns {
		columns[i] = quote(c)
	}
	if s.Text != "" {
		entry["text"] = s.Text
	} else {
		entry["columns"] = columns
	}
	if s.Filter != "" {
		entry["where"] = s.Filter
	}
	if len(s.Joins) > 0 {
		entry["joins"] = written(s.Joins)
	}
	if s.IntoColumn != "" {
		entry["into"] = map[string]string{"column": quote(s.IntoColumn), "type": s.IntoType.Name()}
	} else {
		entry["into"] = map[string]string{"table": quote(s.IntoTable), "type": s.IntoType.Name()}
	}
	if c := s.Chunking; c.On() {
		chunking := map[string]any{"strategy": c.Strategy, "tokens": c.Tokens, "overlap": c.Overlap, "store_text": !c.NoText}
		if c.Context != "" {
			chunking["context"] = c.Context
		}
		entry["chunking"] = chunking
	}
	if !s.Budget.None() {
		entry["budget"] = s.Budget
	}
	return entry
}

// written are joins as a file has them.
func written(joins pipeline.Joins) (list []map[string]any) {
	for _, j := range joins {
		on := map[string]string{}
		for _, o := range j.On {
			on[o.Column] = o.Of
		}
		list = append(list, map[string]any{
			"table": j.Schema + "." + j.Table, "as": j.As, "on": on, "text": j.Text, "joins": written(j.Joins),
		})
	}
	return list
}

// environ is what every process of the rig gets.
func (r *rig) environ() []string {
	return append([]string{
		// names of sockets are short; a test's own folder is too deep
		"PATH=/usr/bin:/bin", "EMBEDSIDECAR_LOG_FORMAT=text", "HOME=" + r.dir, "TMPDIR=" + programs,
		"EMBEDSIDECAR_DATABASE_URL=" + r.url, "EMBEDSIDECAR_STREAM_URL=" + r.stream, "EMBEDSIDECAR_SLOT=" + r.slot,
		"EMBEDSIDECAR_PUBLICATION_NAME=" + r.db.Name + "_pub",
		"EMBEDSIDECAR_PLUGIN_DIR=" + programs, "EMBEDSIDECAR_PLUGIN=fake",
		fmt.Sprintf("EMBEDSIDECAR_PLUGIN_DIMS=%d", dims), "EMBEDSIDECAR_PLUGIN_CALLS=" + r.calls,
		"EMBEDSIDECAR_HTTP_QUERIES_SEARCH_TIMEOUT=1m", // a busy machine is no slow search
	}, r.also...)
}

// do runs a command to its end, which must have this status, and returns what it said.
func (r *rig) do(status int, args ...string) string {
	r.t.Helper()
	c := r.start(nil, args...)
	if s := c.wait(waitTimeout); s.ExitStatus() != status {
		r.t.Fatalf("embedsidecar %s ended with %v, want status %d:\n%s", strings.Join(args, " "), c.cmd.ProcessState, status,
			c.tail())
	}
	return c.tail()
}

// leisurely has run give long leases from now on: for tests in which none is lost by a kill, and none may be lost
// because the machine has forgotten the sidecar for a second.
func (r *rig) leisurely() { r.lease = time.Hour }

// run starts a sidecar with small batches and short leases.
func (r *rig) run(environ ...string) *child {
	r.t.Helper()
	lease := r.lease
	if lease == 0 {
		lease = short
	}
	return r.start(environ, "run", "--no-init", "--set", "lease="+lease.String(), "--set",
		"workers.batch_rows="+strconv.Itoa(batch),
		"--workers", strconv.Itoa(loops),
		"--set", "retry.initial=100ms", "--set", "retry.max=1s")
}

// runPlain starts a sidecar as most users do.
func (r *rig) runPlain() *child {
	r.t.Helper()
	return r.start(nil, "run", "--no-init")
}

// streaming waits until a sidecar has the slot.
func (r *rig) streaming(c *child) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return c.said("msg=streaming"), c.tail()
	})
}

func (r *rig) count(sql string, args ...any) int {
	r.t.Helper()
	return int(testenv.Value[int64](r.db, sql, args...))
}

// oracle is the fake embedder as the workload's oracle knows it.
func oracle(text string) ([]float32, bool) {
	if vector.Empty(text) {
		return nil, true
	}
	return vector.Of(text, dims), false
}

// sent returns how many texts the plugins received, without those that their host asks on its own account.
func (r *rig) sent() int {
	r.t.Helper()
	n, err := vector.Sent(r.calls, host.CanaryTexts())
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// sentAgain returns how many texts were embedded that had been before.
func (r *rig) sentAgain() (n int) {
	r.t.Helper()
	for _, times := range r.counts() {
		n += times - 1
	}
	return n
}

// counts returns how often each text of a row was embedded, by its hash.
func (r *rig) counts() map[string]int {
	r.t.Helper()
	counts, err := vector.SentEach(r.calls, append(host.CanaryTexts(), "a question"))
	if err != nil {
		r.t.Fatal(err)
	}
	return counts
}

// prove waits until every vector is that of its text, and lets the program prove the same for itself. Then it ends
// the sidecar and looks at what it leaves behind: nothing.
func (r *rig) prove(c *child, shapes []workload.Shape) workload.Report {
	r.t.Helper()
	r.t.Cleanup(func() { r.explain(c) })
	found := workload.Settle(r.t, r.db, shapes, oracle, waitTimeout)
	c.mustLive()
	streams := c.times("msg=streaming")
	// All vectors can be right before all changes were read: a scan may have found them first.
	r.caughtUp()
	r.silent(c, streams)
	if n := r.count(`SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, r.role); n > 48 {
		r.t.Errorf("the sidecar has %d connections", n)
	}
	r.do(0, "verify", "--deep", "1000000")
	c.terminate()
	r.nothingLeft()
	// With a stream that had just broken off there was nobody to tell.
	if !testenv.Value[bool](r.db, `SELECT s.confirmed_flush_lsn = k.lsn FROM pg_replication_slots AS s
		JOIN embedsidecar.lsn_checkpoint AS k USING (slot_name) WHERE s.slot_name = $1`, r.slot) &&
		c.last("msg=streaming") > c.last("replication interrupted") {
		r.t.Error("the slot was not told of all that is durable, though the sidecar ended in good order")
	}
	return found
}

// explain tells of a failed test what is still to be done, and why nobody may be doing it.
func (r *rig) explain(c *child) {
	r.t.Helper()
	if !r.t.Failed() {
		return
	}
	for _, look := range []string{
		`SELECT concat_ws(' ', p.name, p.status, p.status_detail, 'enabled', p.enabled, 'generation', p.generation, t.state,
			'lane', t.lane, 'losses', t.losses,
			'attempt', t.attempt, 'visible', pg_visible_in_snapshot(t.xid, pg_current_snapshot()), 'tasks', count(*),
			min(t.row_key), t.error_code)
			FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
			GROUP BY p.pipeline_id, t.state, t.lane, t.losses, t.attempt, t.error_code, pg_visible_in_snapshot(t.xid, pg_current_snapshot())`,
		`SELECT concat_ws(' ', usename, application_name, state, wait_event_type, wait_event, now() - xact_start,
			backend_xmin, left(query, 100))
			FROM pg_stat_activity WHERE datname = current_database()`,
	} {
		for _, line := range testenv.Values[string](r.db, look) {
			r.t.Log(line)
		}
	}
	r.t.Log(c.tail())
}

// neverAhead checks that the server was not told to forget what is not durable here. What it was told is asked first:
// a statement reads the slot later than its snapshot is of, and a sidecar that lives may have gone on in between.
func (r *rig) neverAhead() {
	r.t.Helper()
	told := testenv.Value[string](r.db,
		`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
	if !testenv.Value[bool](r.db, `SELECT $2::text::pg_lsn <= lsn AND lsn <= pg_current_wal_flush_lsn()
		FROM embedsidecar.lsn_checkpoint WHERE slot_name = $1`, r.slot, told) {
		r.t.Error("the slot is ahead of the checkpoint, or that of the server")
	}
}

// silent checks that settled tables cause no work: nothing is embedded, no task is made. A sidecar whose stream was
// broken off, which the rig's wal_sender_timeout does when a busy machine forgets it for as long, is sent again what
// it has handled already: then it is asked once more. Streams is how often it had begun to stream before it had
// caught up.
func (r *rig) silent(c *child, streams int) {
	r.t.Helper()
	for {
		made, sent := r.count(`SELECT last_value FROM embedsidecar.task_seq`), r.sent()
		pause(r.t.Context(), time.Second)
		made, sent = r.count(`SELECT last_value FROM embedsidecar.task_seq`)-made, r.sent()-sent
		again := c.times("msg=streaming")
		if made == 0 && sent == 0 || again == streams {
			if made > 0 || sent > 0 {
				r.t.Errorf("%d tasks were made and %d texts embedded though nothing changed", made, sent)
			}
			return
		}
		streams = again
		r.caughtUp()
	}
}

// caughtUp waits until a sidecar has done all there is to do.
func (r *rig) caughtUp() {
	r.t.Helper()
	r.do(0, "wait", "--caught-up", "--timeout", waitTimeout.String())
}

// nothingLeft checks what processes that have ended leave behind: no process, no connection, no slot but the one.
func (r *rig) nothingLeft() {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		if left := r.plugins(); len(left) > 0 {
			return false, fmt.Sprintf("plugins left: %v", left)
		}
		// What streamed is another role's, and what it was told last may not have been read yet.
		n := r.count(`SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = $1)
			+ (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $2 AND active)`, r.role, r.slot)
		return n == 0, fmt.Sprintf("%d connections left", n)
	})
	slots := testenv.Values[string](r.db,
		`SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() OR temporary`)
	if len(slots) != 1 || slots[0] != r.slot {
		r.t.Errorf("slots left: %v, want only %s", slots, r.slot)
	}
}

// countVersions makes the database count what is to be embedded: every new row, every changed text or key, every
// vector taken away.
func (r *rig) countVersions(shapes []workload.Shape) {
	r.t.Helper()
	r.db.MustExec(`CREATE UNLOGGED TABLE public.versions (at timestamptz DEFAULT now());
		CREATE FUNCTION public.count_version() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			before jsonb;
			after  jsonb := to_jsonb(NEW) - TG_ARGV[0];
		BEGIN
			IF TG_OP = 'UPDATE' THEN
				before := to_jsonb(OLD) - TG_ARGV[0];
				IF before - TG_ARGV[1] = after - TG_ARGV[1] AND NOT (jsonb_typeof(after -> TG_ARGV[1]) = 'null'
				AND jsonb_typeof(before -> TG_ARGV[1]) <> 'null') THEN
					RETURN NULL;
				END IF;
			END IF;
			INSERT INTO public.versions DEFAULT VALUES;
			RETURN NULL;
		END $$;
		ALTER FUNCTION public.count_version() SECURITY DEFINER`)
	for _, s := range shapes {
		r.db.MustExec(fmt.Sprintf(`CREATE TRIGGER count_version AFTER INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION public.count_version(%s, %s)`,
			s.Source(), literal(s.Counter), literal(s.IntoColumn)))
	}
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// countLost makes the database count the tasks whose leases are lost from now on: those of sidecars that were killed,
// of plugins that died, and of batches that took longer than their lease. It goes by leases that are swept away, not by
// what the sweep notes of their tasks: it passes over those that the stream is just about to change.
func (r *rig) countLost() {
	r.t.Helper()
	r.db.MustExec(`CREATE UNLOGGED TABLE public.lost (at timestamptz DEFAULT now());
		CREATE FUNCTION public.count_lost() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			IF TG_TABLE_NAME = 'task' THEN
				INSERT INTO public.lost DEFAULT VALUES;
			ELSE
				INSERT INTO public.lost SELECT now() FROM embedsidecar.task AS t WHERE t.task_id = ANY (OLD.task_ids);
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER count_lost AFTER UPDATE ON embedsidecar.task FOR EACH ROW
			WHEN (NEW.losses > OLD.losses AND NEW.lost_leases <= OLD.lost_leases) EXECUTE FUNCTION public.count_lost();
		CREATE TRIGGER count_lost AFTER DELETE ON embedsidecar.lease FOR EACH ROW WHEN (OLD.leased_until < now())
			EXECUTE FUNCTION public.count_lost()`)
}

// lost returns how many were.
func (r *rig) lost() int {
	r.t.Helper()
	return r.count(`SELECT count(*) FROM public.lost`)
}

// countWays makes the database count the rows whose ledger is written from now on: those with a task, and those
// without.
func (r *rig) countWays() {
	r.t.Helper()
	r.db.MustExec(`CREATE UNLOGGED TABLE public.ways (direct boolean);
		CREATE FUNCTION public.count_way() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		DECLARE
			l embedsidecar.ledger := coalesce(NEW, OLD);
		BEGIN
			INSERT INTO public.ways SELECT NOT EXISTS (SELECT FROM embedsidecar.task AS t
				WHERE t.pipeline_id = l.pipeline_id AND t.row_key = l.row_key);
			RETURN NULL;
		END $$;
		CREATE TRIGGER count_way AFTER INSERT OR UPDATE OR DELETE ON embedsidecar.ledger FOR EACH ROW EXECUTE FUNCTION public.count_way()`)
}

// straight returns how many of these rows were written straight from the stream, or through the queue.
func (r *rig) straight(direct bool) int {
	r.t.Helper()
	return r.count(`SELECT count(*) FROM public.ways WHERE direct = $1`, direct)
}

// pause waits for a while that is part of the test, not for a condition.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
