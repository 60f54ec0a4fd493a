package sidecar_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// fakePlugin builds the fake plugin and returns its path.
func fakePlugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "embedsidecar-fake")
	if out, err := exec.Command("go", "build", "-o", path, "../../../plugins/fake").CombinedOutput(); err != nil {
		t.Fatalf("build the fake plugin: %v\n%s", err, out)
	}
	return path
}

// withPlugin has the pipeline docs embedded by a plugin of its own, with these faults and this long for a call; the
// others keep the counter.
func (r *rig) withPlugin(path, faults string, limit time.Duration) *host.Host {
	r.t.Helper()
	h, err := host.New(host.Options{
		Path: path, RestartDelay: 10 * time.Millisecond, RestartDelayMax: 200 * time.Millisecond, Log: logger(r.t),
		StartTimeout: waitTimeout,
		CallTimeout:  func(int, int) time.Duration { return limit },
		Env:          map[string]string{"EMBEDSIDECAR_PLUGIN_DIMS": fmt.Sprint(dims), "EMBEDSIDECAR_PLUGIN_FAULTS": faults},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := h.Close(); err != nil {
			r.t.Errorf("close the plugin: %v", err)
		}
	})
	d, err := h.Describe(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.db.MustExec(`UPDATE embedsidecar.pipeline SET plugin = 'fake', model = 'fake', fingerprint = $1 WHERE name = 'docs'`,
		d.Fingerprint)
	r.options = func(o *sidecar.Options) {
		quick(o)
		o.Embedder = func(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
			if p.Plugin == "fake" {
				return h, nil
			}
			return r.embedder, nil
		}
	}
	return h
}

// TestP5_APoisonedPluginStaysAlone: a real plugin process that texts kill, hang and drive to nonsense.
func TestP5_APoisonedPluginStaysAlone(t *testing.T) {
	t.Parallel()
	path := fakePlugin(t)
	poisons := map[string]string{ // token: class of the dead letter
		"KILLS": "crash", "PANICS": "", "HANGS": "crash", "NAN": "data", "INFINITE": "data", "ZERO": "data",
		"REFUSED": "data", "INVALID": "data",
	}
	faults := "crash-on=KILLS;panic-on=PANICS;hang-on=HANGS;nan-on=NAN;inf-on=INFINITE;zero-on=ZERO;refuse-on=REFUSED;invalid-on=INVALID"
	for token, class := range poisons {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(notes)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 100) AS i`)
			db.MustExec(`UPDATE docs SET body = 'it ' || $1 || ' here' WHERE id = 50`, token)
			r := newRig(t, db, column("docs", "body"), intoTable("notes", "body"))
			limit := waitTimeout
			if token == "HANGS" {
				// five times; to make an innocent row fail, it would have to be as slow five times in a row
				limit = 2 * time.Second
			}
			h := r.withPlugin(path, faults, limit)
			r.start()
			for i := range 10 { // another pipeline does not even notice
				db.MustExec(`INSERT INTO notes VALUES ($1, $2)`, i, fmt.Sprint("note ", i))
				r.has(int64(i+1), `SELECT count(*) FROM notes_embedding`)
			}
			r.settle()
			type letter struct{ Key, Class, Code, Message string }
			got := testenv.Rows[letter](db, `SELECT row_key, error_class, error_code, error_message FROM embedsidecar.task`)
			if len(got) != 1 || got[0].Key != "50" || class != "" && got[0].Class != class {
				t.Errorf("dead letters %+v, want row 50 alone, of class %s", got, class)
			}
			for _, l := range got {
				if strings.Contains(l.Message, "here") {
					t.Errorf("the message holds the row's text: %q", l.Message)
				}
			}
			if n := r.count(`SELECT count(embedding) FROM docs`); n != 99 {
				t.Errorf("%d rows have a vector, want 99", n)
			}
			db.MustExec(`UPDATE docs SET body = 'harmless' WHERE id = 50`)
			r.settle()
			if n := r.count(`SELECT count(embedding) FROM docs`); n != 100 {
				t.Errorf("%d rows have a vector, want 100", n)
			}
			testenv.Eventually(t, waitTimeout, func() (bool, string) { return h.Pid() != 0, "the plugin does not run" })
			r.verify() // the counter makes the same vectors, and tells the truth
		})
	}
}

func TestP5_APluginThatLiesNowAndThen(t *testing.T) {
	t.Parallel()
	path := fakePlugin(t)
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 300) AS i`)
	r := newRig(t, db, intoTable("docs", "body"), intoTable("notes", "body"))
	r.withPlugin(path, "wrong-count-every=3;wrong-dims-every=4;garbage-every=5;unavailable-every=7", waitTimeout)
	with := r.options
	// Two calls of three fail, and whose they are is a matter of luck: eight tries of one row were not enough each time.
	r.options = func(o *sidecar.Options) { with(o); o.BatchRows, o.Retry.MaxAttempts = 50, 100 }
	r.start()
	db.MustExec(`INSERT INTO notes VALUES (1, 'a note')`)
	r.has(1, `SELECT count(*) FROM notes_embedding`)
	r.settle()
	if left := testenv.Values[string](db, `SELECT row_key || ' ' || error_message FROM embedsidecar.task LIMIT 5`); len(
		left) != 0 {
		t.Errorf("dead letters for what the plugin did, not the texts: %q", left)
	}
	r.verify() // the counter makes the same vectors, and tells the truth
}

// TestP5_RefusalsNobodyThoughtOf has the database refuse a statement of ours for one row, in a place where no row
// should matter: asking for a look at the present spelling of a key.
func TestP5_RefusalsNobodyThoughtOf(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExecSuper(`CREATE EXTENSION citext`)
	db.MustExec(`CREATE TABLE docs (code citext PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs SELECT 'row ' || i, 'text ' || i FROM generate_series(1, 50) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) { o.Retry.MaxAttempts = 2 }
	r.start()
	r.settle()
	db.MustExecSuper(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$`)
	db.MustExecSuper(`CREATE TRIGGER refuse BEFORE INSERT ON embedsidecar.task FOR EACH ROW
		WHEN (NEW.row_key = 'ROW 7' AND NEW.first_lsn = '0/0') EXECUTE FUNCTION public.refuse()`)
	db.MustExec(`UPDATE embedsidecar.installation SET enabled = false`)
	db.MustExec(`UPDATE docs SET body = body || '!'`)
	for _, code := range []string{"Row 7", "ROW 7"} {
		db.MustExec(`UPDATE docs SET code = $1::text WHERE code = 'row 7'`, code)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := r.count(`SELECT count(*) FROM embedsidecar.task`)
		return n >= 52, fmt.Sprintf("%d tasks", n)
	})
	db.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
	r.settle()
	if n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE state = 'failed' AND error_code = 'refused'`); n != 2 {
		t.Errorf("%d dead letters, want the two old spellings", n)
	}
	if n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE state <> 'failed'`); n != 0 {
		t.Errorf("%d tasks were held up", n)
	}
	db.MustExecSuper(`DROP TRIGGER refuse ON embedsidecar.task`)
	db.MustExec(`UPDATE embedsidecar.task SET state = 'todo', attempt = 0, seq = nextval('embedsidecar.task_seq')`)
	db.MustExec(`UPDATE docs SET body = body || '?' WHERE code = 'row 1'`) // whoever retries wakes the workers
	r.settle()
	r.verify()
}

// patient is an embedder that has other texts to do first.
type patient struct {
	embed.Embedder
	token string
	after time.Duration
}

func (p patient) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	results, err := p.Embedder.Embed(ctx, kind, texts)
	for i := range results {
		if strings.Contains(texts[i], p.token) {
			results[i] = embed.Result{Err: &embed.TextError{
				Class: embed.Transient, Code: "retry_later", Message: "not now",
				RetryAfter: p.after,
			}}
		}
	}
	return results, err
}

// TestRetryLater_OfOneTextIsWhenItSays: neither sooner nor at the price of an attempt, and its neighbours have their
// vectors.
func TestRetryLater_OfOneTextIsWhenItSays(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20) AS i`)
	db.MustExec(`UPDATE docs SET body = 'it takes PATIENCE' WHERE id = 7`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) {
		quick(o) // with pauses of its own that are far shorter
		o.Embedder = func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) {
			return patient{r.embedder, "PATIENCE", time.Hour}, nil
		}
	}
	r.start()
	r.has(19, `SELECT count(*) FROM docs_embedding`)
	r.has(1, `SELECT count(*) FROM embedsidecar.task WHERE row_key = '7' AND state = 'retrying' AND attempt = 0
		AND error_code = 'retry_later' AND due_at > now() + interval '30 minutes'`)
}

// mute is an embedder that does not say what it is before it is let.
type mute struct {
	*counter
	speak chan struct{}
}

func (m mute) Describe(ctx context.Context) (embed.Description, error) {
	select {
	case <-m.speak:
		return m.counter.Describe(ctx)
	case <-ctx.Done():
		return embed.Description{}, ctx.Err()
	}
}

// An embedder takes its time to start, or never does. Others start meanwhile, and what is done to other pipelines is
// noticed.
func TestP5_AnEmbedderThatDoesNotStartKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	r := newRig(t, db, column("docs", "body"), intoTable("notes", "body"))
	db.MustExec(`UPDATE embedsidecar.pipeline SET plugin = 'mute' WHERE name = 'docs'`)
	silent := mute{newCounter(), make(chan struct{})}
	r.options = func(o *sidecar.Options) {
		o.Embedder = func(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
			if p.Plugin == "mute" {
				return silent, nil
			}
			return r.embedder, nil
		}
	}
	s, _ := r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'body')`)
	db.MustExec(`INSERT INTO notes VALUES (1, 'a note')`)
	r.has(1, `SELECT count(*) FROM notes_embedding`)
	reason(t, s, "docs", "it is being started")
	db.MustExec(`ALTER TABLE notes RENAME COLUMN body TO text`) // it is to be loaded again
	db.MustExec(`INSERT INTO notes VALUES (2, 'another')`)
	r.has(2, `SELECT count(*) FROM notes_embedding`)
	close(silent.speak)
	r.has(1, `SELECT count(embedding) FROM docs`)
}
