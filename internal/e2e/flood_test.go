//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_AFullQueueOfNotifications: a role that may do nothing but log in listens, goes to sleep in a transaction, and
// notifies until the server takes no more. Rows are embedded, waited for and acted on all the same.
func TestP5_AFullQueueOfNotifications(t *testing.T) {
	t.Parallel()
	if _, major, err := testenv.FindServer(t.Context(), 0); err == nil && major < 17 {
		t.Logf("the queue of PostgreSQL %d takes 8 GB: nothing is tried", major)
		return
	}
	server := testenv.Own(t, testenv.Options{Config: map[string]string{"max_notify_queue_pages": "64"}})
	db := testenv.DB(t, testenv.On(server), testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
		IntoTable: "docs_embedding",
	})
	c := r.runPlain()
	r.streaming(c)
	stranger := db.URL(db.Role(""))
	sleeper, err := pgx.Connect(t.Context(), stranger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Close(t.Context()) }()
	for _, sql := range []string{`LISTEN flood`, `BEGIN`, `SELECT 1`} {
		if _, err := sleeper.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	flood, err := pgx.Connect(t.Context(), stranger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flood.Close(t.Context()) }()
	for err == nil {
		_, err = flood.Exec(t.Context(), `SELECT pg_notify('flood', repeat('x', 7000))`)
	}
	db.MustExec(`INSERT INTO public.docs VALUES (1, 'a text')`)
	r.caughtUp()
	if n := r.count(`SELECT count(*) FROM public.docs_embedding`); n != 1 {
		t.Errorf("%d rows have a vector", n)
	}
	db.MustExec(`CALL embedsidecar.wait_until(timeout => '1 min')`)
	db.MustExec(`SELECT embedsidecar.create_pipeline('{"name": "more", "table": "public.docs", "columns": ["body"],
		"into": {"table": "more_embedding"}}')`)
	db.MustExec(`SELECT embedsidecar.model_change('docs', 'fake-dims12')`)
	c.terminate()
}

// TestP9_ManyMessagesOfStrangers: a role that may do nothing but log in writes logical messages as fast as it can. What
// the server takes to send them is no matter of ours: so what the sidecar takes is compared with pg_recvlogical, which
// throws away all that it reads.
func TestP9_ManyMessagesOfStrangers(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{})), testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
		IntoTable: "docs_embedding",
	})
	r.senderTimeout("1min")
	c := r.runPlain()
	r.streaming(c)
	db.MustExec(`INSERT INTO public.docs VALUES (0, 'first')`)
	r.caughtUp()
	db.MustExecSuper(`SELECT pg_create_logical_replication_slot('reader', 'pgoutput')`)
	conn, err := pgx.Connect(t.Context(), db.URL(db.Role("")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for i, message := range []string{
		`false, 'outbox', 'x'`, `true, 'embedsidecar', 'mark'`, `false, 'embedsidecar.wait', ''`,
		// in turns, so that none stands for those before it
		`false, 'embedsidecar.' || CASE n % 2 WHEN 0 THEN 'wait' ELSE 'ask' END, repeat('x', 60 * (n % 2))`,
	} {
		peak, cpu := c.peak(), cpuTime(t, c.pid())
		if _, err := conn.Exec(t.Context(), `SELECT count(pg_logical_emit_message(`+message+`)) FROM generate_series(1, 500000) AS n`); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		db.MustExec(`INSERT INTO public.docs VALUES ($1, 'after it')`, i+1)
		// Both read at the same time, or the machine would be another one for each.
		reader := exec.CommandContext(t.Context(), filepath.Join(db.Server.Bin(), "pg_recvlogical"), "-d",
			db.URL(testenv.Owner), "--slot=reader", "--start", "--no-loop", "-f", "/dev/null",
			"-o", "proto_version=1", "-o", "messages=true",
			"-o", "publication_names="+db.Name+"_pub",
			"--endpos="+testenv.Value[string](db, `SELECT pg_current_wal_insert_lsn()::text`))
		db.MustExec(`SELECT pg_logical_emit_message(true, 'end', '')`)
		var theirs time.Duration
		read := make(chan error, 1)
		go func() {
			out, err := reader.CombinedOutput()
			if theirs = time.Since(begin); err != nil {
				err = fmt.Errorf("pg_recvlogical: %w: %s", err, out)
			}
			read <- err
		}()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return r.count(`SELECT count(*) FROM public.docs_embedding WHERE id = $1`, i+1) == 1, "no vector yet"
		})
		took := time.Since(begin)
		peak, cpu = c.peak()-peak, cpuTime(t, c.pid())-cpu
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		their := reader.ProcessState.UserTime() + reader.ProcessState.SystemTime()
		t.Logf("%s: the next vector after %s with %s of CPU, %d KiB more; pg_recvlogical reads it in %s with %s", message,
			took.Round(time.Millisecond), cpu, peak, theirs.Round(time.Millisecond), their.Round(time.Millisecond))
		if took > 5*theirs+5*time.Second {
			t.Errorf("%s: the next vector came after %s; pg_recvlogical has read all of it in %s", message, took, theirs)
		}
		if cpu > 5*their+2*time.Second {
			t.Errorf("%s: it took %s of CPU, pg_recvlogical %s", message, cpu, their)
		}
		if peak > 32<<10 {
			t.Errorf("%s: it took %d KiB more", message, peak)
		}
	}
	c.terminate()
}
