package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// ended are the jobs of a pipeline: one that has ended, with one row and one text.
func ended(t *testing.T) (db *testenv.Database, id int64, j *Jobs) {
	t.Helper()
	db = testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO embedsidecar.lsn_checkpoint (slot_name, publication, publication_oid, system_id, timeline,
		consistent_point, lsn) VALUES ('slot', 'pub', 0, '0', 1, '0/1', '0/1')`)
	db.MustExec(`INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns,
			key_columns, destination_table, destination_schema, dims, plugin, model, fingerprint)
		VALUES ('docs', 'slot', 'public.docs'::regclass, 'public', 'docs', '{body}', '{id}', 'docs_embedding', 'public', 3,
			'p', 'm', 'f')`)
	id = testenv.Value[int64](db, `INSERT INTO embedsidecar.batch_job (pipeline_id, pipeline, plugin, model, nonce, state)
		SELECT pipeline_id, name, plugin, model, 'new', 'ended' FROM embedsidecar.pipeline RETURNING job_id`)
	db.MustExec(`INSERT INTO embedsidecar.batch_item (pipeline_id, row_key, job_id, released)
		SELECT pipeline_id, '1', job_id, false FROM embedsidecar.batch_job`)
	db.MustExec(`INSERT INTO embedsidecar.batch_text (job_id, text_hash) VALUES ($1, '\x01')`, id)
	p := &pipeline.Pipeline{ID: testenv.Value[int32](db, `SELECT pipeline_id FROM embedsidecar.pipeline`)}
	return db, id, New(Options{Pipeline: p, DB: db.Pool, ID: 1})
}

// TestP8_AJobOfARestoredDatabaseIsNotTheOneInHand: a restored database gives the number of a job out again. Who still
// has the job of that number from before stores no results in it, moves it no further and releases none of its rows.
func TestP8_AJobOfARestoredDatabaseIsNotTheOneInHand(t *testing.T) {
	t.Parallel()
	db, id, j := ended(t)
	for _, nonce := range []string{"old", "new"} {
		want := nonce == "new"
		b := &job{id: id, state: "ended", nonce: nonce}
		var some results
		some.add([]byte{1}, []float32{1, 2, 3})
		if err := j.store(t.Context(), b, &some); want != (err == nil) || !want && !errors.Is(err, errMoved) {
			t.Errorf("%s: store: %v", nonce, err)
		}
		stored := testenv.Value[bool](db, `SELECT vector IS NOT NULL FROM embedsidecar.batch_text`)
		released, err := j.releaseSome(t.Context(), b)
		if err != nil || stored != want || released > 0 != want {
			t.Errorf("%s: stored %t, %d rows released, error %v", nonce, stored, released, err)
		}
		if gone, err := j.drop(t.Context(), b); err != nil || gone {
			t.Errorf("%s: gone %t, error %v", nonce, gone, err)
		}
	}
	db.MustExec(`UPDATE embedsidecar.batch_job SET worker_id = 1`)
	if err := j.move(t.Context(), &job{id: id, state: "ended", nonce: "old"}, change{to: "ended"}); !errors.Is(err,
		errMoved) {
		t.Errorf("move: %v", err)
	}
}

// TestP1_AClockThatWasSetBackStrandsNoJob: a job that was to be looked at a moment later is due, though the moment is
// now next year.
func TestP1_AClockThatWasSetBackStrandsNoJob(t *testing.T) {
	t.Parallel()
	db, _, j := ended(t)
	for in, due := range map[string]bool{"-1 year": true, "-1 s": true, "50 s": false, "1 year": true} {
		db.MustExec(`UPDATE embedsidecar.batch_job SET next_at = now() + $1::interval`, in)
		if b, err := j.take(t.Context()); err != nil || (b != nil) != due {
			t.Errorf("%s: job %v, error %v, want due: %t", in, b, err, due)
		}
	}
}

// TestP1_AScanLeavesNoGatheredRowsBehind: a sidecar that does not know yet that a pipeline has batch jobs cannot end a
// scan whose rows another one has gathered.
func TestP1_AScanLeavesNoGatheredRowsBehind(t *testing.T) {
	t.Parallel()
	db, _, j := ended(t)
	db.MustExec(`UPDATE embedsidecar.batch_job SET state = 'gathering'`)
	db.MustExec(`INSERT INTO embedsidecar.scan (pipeline_id, phase, started, barrier)
		SELECT pipeline_id, 'rows', 1, '3' FROM embedsidecar.pipeline`)
	ends := func() int64 {
		tag, err := db.Pool.Exec(t.Context(), sqlfiles.Query("save_scan"), pgx.StrictNamedArgs{
			"pipeline_id": j.o.Pipeline.ID, "phase": "orphans", "after_key": nil, "started": 1, "begin": false, "seen": 0,
			"made": 0, "table": testenv.Value[uint32](db, `SELECT 'docs'::regclass::oid`), "generation": 1,
			"old_phase": "rows", "old_after_key": nil, "old_requested": 1, "old_started": 1,
			"life": testenv.Value[time.Time](db, `SELECT embedsidecar.server_life()`),
		})
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	if ends() != 0 {
		t.Error("the scan ended while rows were gathered")
	}
	if err := j.Close(t.Context()); err != nil || ends() != 1 {
		t.Errorf("the scan did not end after the job was closed: %v", err)
	}
}

// TestP1_AJobIsLeftToOthersWhenItsPipelineStops: the sidecar may live on, without the model or the pipeline.
func TestP1_AJobIsLeftToOthersWhenItsPipelineStops(t *testing.T) {
	t.Parallel()
	db, _, j := ended(t)
	j.o.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for worker, want := range map[int64]bool{1: true, 2: false} {
		db.MustExec(`UPDATE embedsidecar.batch_job SET worker_id = $1`, worker)
		if err := j.Run(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if left := testenv.Value[bool](db, `SELECT worker_id IS NULL FROM embedsidecar.batch_job`); left != want {
			t.Errorf("the job of sidecar %d is left: %t", worker, left)
		}
	}
}

// TestP8_AJobKnowsWhatIsLeftOfABudget: whatever the price is, and whether others may still use some of it.
func TestP8_AJobKnowsWhatIsLeftOfABudget(t *testing.T) {
	t.Parallel()
	db, id, j := ended(t)
	db.MustExec(`UPDATE embedsidecar.pipeline SET budget = '{"money": 1}'`)
	j.o.Pipeline.Budget = pipeline.Budget{Money: 1}
	left := func(price float64, want int64, wantHeld bool) {
		t.Helper()
		j.o.Price.Batch = price
		if got, held, err := j.budgetLeft(t.Context()); err != nil || got != want || held != wantHeld {
			t.Errorf("at %g: %d tokens are left, held %t, error %v; want %d, %t", price, got, held, err, want, wantHeld)
		}
	}
	left(0.5, 2_000_000, false)
	left(0.0625, 16_000_000, false)
	left(2.5, 400_000, false)
	db.MustExec(`INSERT INTO embedsidecar.hold (pipeline, worker_id, expires_at, likely, most, price)
		VALUES ('docs', 0, 'infinity', 1500000, 2000000, 0.5)`)
	left(0.5, 500_000, true)

	db.MustExec(`UPDATE embedsidecar.batch_job SET state = 'closed', worker_id = 1`)
	db.MustExec(`UPDATE embedsidecar.batch_item SET released = false`)
	jobs := func() int64 { return testenv.Value[int64](db, `SELECT count(*) FROM embedsidecar.batch_job`) }
	b := &job{id: id, state: "closed", nonce: "new"}
	if err := j.exceeds(t.Context(), b, "1", true); err != nil || jobs() != 1 {
		t.Errorf("while it waits there are %d jobs, error %v", jobs(), err)
	}
	if err := j.exceeds(t.Context(), b, "1", false); err != nil || jobs() != 2 {
		t.Errorf("then there are %d jobs, error %v, want one of the row", jobs(), err)
	}
}

// unconfirmed is a provider that answers what poll says about each job.
type unconfirmed struct {
	embed.Embedder
	poll func() (embed.Job, error)
}

func (unconfirmed) Describe(context.Context) (embed.Description, error) {
	return embed.Description{Plugin: "p", Model: "m", Fingerprint: "f", Dims: 3, Batches: true}, nil
}

func (u unconfirmed) Poll(context.Context, string, string) (embed.Job, error) { return u.poll() }

func (unconfirmed) Submit(context.Context, string, []string, []string) (embed.Job, error) {
	return embed.Job{}, nil
}

func (unconfirmed) Fetch(context.Context, string, func(string, embed.Result) error) error { return nil }

func (unconfirmed) Cancel(context.Context, string) error { return nil }

// TestP1_AJobThatTheProviderNeverConfirmsEnds: it is submitted a few times, or not even that if the provider does not
// tell; then its rows are embedded as usual.
func TestP1_AJobThatTheProviderNeverConfirmsEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err         error
		submissions int
	}{
		"it is unknown":             {nil, mostTries},
		"the key may only submit":   {&embed.Error{Class: embed.Configuration, Code: "forbidden"}, 1},
		"the provider is away, too": {&embed.Error{Class: embed.Transient, Code: "away"}, mostTries},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, id, j := ended(t)
			polls := 0
			j.o.Log = slog.New(slog.DiscardHandler)
			j.o.Service = embed.NewService(unconfirmed{poll: func() (embed.Job, error) {
				if polls++; c.err != nil && (lasting(c.err) || polls%2 == 0) {
					return embed.Job{}, c.err
				}
				return embed.Job{State: embed.JobUnknown}, nil
			}}, 0)
			db.MustExec(`UPDATE embedsidecar.batch_job SET state = 'closed', worker_id = 1`)
			submissions := 0
			for range 10 * mostTries * round {
				db.MustExec(`UPDATE embedsidecar.batch_job SET next_at = now()`)
				b, err := j.take(t.Context())
				if err != nil || b == nil {
					t.Fatalf("job %v, error %v", b, err)
				}
				switch b.state {
				case "closed": // Submit times out
					submissions++
					_, err = j.write(t.Context(), b, &texts{list: []string{"one"}, hashes: [][]byte{{byte(submissions + 1)}}}, nil, nil)
					if err == nil {
						err = j.later(t.Context(), b, "timeout")
					}
				case "submitting":
					if err = j.find(t.Context(), b); err != nil {
						err = j.later(t.Context(), b, "")
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if b.state == "ended" {
					break
				}
			}
			state := testenv.Value[string](db, `SELECT state || ' ' || message FROM embedsidecar.batch_job WHERE job_id = $1`, id)
			if submissions != c.submissions || !strings.HasPrefix(state, "ended ") {
				t.Errorf("after %d submissions, want %d, the job is %s", submissions, c.submissions, state)
			}
		})
	}
}

// TestP1_ARowWithEqualChunksIsSubmitted: a job holds each text once, also one that a row contains twice. Otherwise its
// rows would wait for ever, and the scan with them.
func TestP1_ARowWithEqualChunksIsSubmitted(t *testing.T) {
	t.Parallel()
	db, id, j := ended(t)
	db.MustExec(`UPDATE embedsidecar.batch_job SET state = 'closed', worker_id = 1; DELETE FROM embedsidecar.batch_text`)
	list := &texts{}
	if !list.add([]string{"one", "same", "same", "two"}, map[[sha256.Size]byte]bool{}, mostLeft) {
		t.Fatal("the row has no room")
	}
	if got := strings.Join(list.list, " "); got != "one same two" || len(list.ids) != 3 {
		t.Errorf("the texts are %q", got)
	}
	b := &job{id: id, state: "closed", nonce: "new"}
	if _, err := j.write(t.Context(), b, list, nil, nil); err != nil {
		t.Errorf("write: %v", err)
	}
	if n := testenv.Value[int](db, `SELECT count(*)::int FROM embedsidecar.batch_text`); n != 3 {
		t.Errorf("%d texts are stored", n)
	}
}
