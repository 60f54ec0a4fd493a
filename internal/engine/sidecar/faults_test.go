package sidecar_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const docs = `CREATE TABLE docs (id bigint PRIMARY KEY, body text)`

// edit changes the rows of docs in a way that a vector of before is wrong.
func (r *rig) edit(word string) {
	r.t.Helper()
	r.db.MustExec(`INSERT INTO docs SELECT i, $1::text || i FROM generate_series(1, 50) AS i ON CONFLICT (id) DO UPDATE SET body = excluded.body`, word)
	r.db.MustExec(`DELETE FROM docs WHERE id % 7 = 0`)
}

// released waits until the server has noticed that nobody streams any more.
func (r *rig) released() {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		return testenv.Value[bool](r.db, `SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1`, r.slot),
			"the slot is still active"
	})
}

func TestP1_ACommitThatIsNotVisibleYetIsNotReadTooEarly(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		for name, noDirect := range map[string]bool{"queue": true, "direct": false} {
			t.Run(name, func(t *testing.T) { t.Parallel(); heldCommit(t, major, noDirect) })
		}
	})
}

// P4: with synchronous_standby_names = '*' the server chooses any session that streams as the standby that commits wait
// for. If that were ours, the commit of a checkpoint would wait for its own confirmation, and every commit of the
// server with it, for ever. So the stream leaves, says why, and comes back when the setting names standbys.
func TestP4_NoCommitWaitsForTheStream(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{})
	db := testenv.DB(t, testenv.On(server))
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	s, _ := r.start()
	r.settle()
	names := func(value string) {
		t.Helper()
		if err := server.Configure(map[string]string{"synchronous_standby_names": value}); err != nil {
			t.Fatal(err)
		}
		db.MustExecSuper(`SELECT pg_reload_conf()`)
	}
	names("*")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		trouble := s.Stream().Trouble.Load()
		told := trouble != nil && trouble.Err != nil &&
			strings.Contains(trouble.Err.Error(), "synchronous_standby_names is '*'")
		return told && !s.Stream().Streaming.Load(), fmt.Sprintf("it streams on: %+v", trouble)
	})
	names("")
	r.edit("after ")
	r.settle()
	r.verify()
}

// heldCommit holds a commit that is in the WAL already, as a synchronous standby that is away does.
func heldCommit(t *testing.T, major int, noDirect bool) {
	t.Helper()
	server := testenv.Own(t, testenv.Options{Major: major})
	db := testenv.DB(t, testenv.On(server))
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs VALUES (1, 'old')`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) {
		unhurried(o)
		o.NoDirect, o.VisibilityTimeout = noDirect, 0 // what is not visible in time becomes a task
	}
	s, _ := r.start()
	r.settle()
	if !noDirect {
		r.straight(s)
	}
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `SET synchronous_commit = on`); err != nil {
		t.Fatal(err)
	}
	db.MustExec(`CREATE TABLE probe (i int)`)
	if err := server.Configure(map[string]string{"synchronous_standby_names": "nobody"}); err != nil {
		t.Fatal(err)
	}
	db.MustExecSuper(`SELECT pg_reload_conf()`)
	// held asks about commits that wait for a standby: of sessions whose last statement is like this.
	held := func(role, statement string) bool {
		var n int
		err := db.Super().QueryRow(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND usename = $1 AND query LIKE $2`, role,
			statement).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	// The setting takes hold when the checkpointer has read it: when a commit waits.
	var probe chan error
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		if probe == nil {
			probe = make(chan error, 1)
			go func() {
				_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), `INSERT INTO probe VALUES (1)`)
				probe <- err
			}()
		}
		select {
		case err := <-probe:
			if probe = nil; err != nil {
				t.Fatal(err)
			}
		default:
		}
		return held(testenv.Owner, `INSERT INTO probe%`), "commits do not wait for a standby"
	})
	changes := s.Stream().Changes.Load()
	committed := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), `UPDATE docs SET body = 'new'`)
		committed <- err
	}()
	// The change is in the WAL and read from there, its task is written, and nobody sees either of them.
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().Changes.Load() > changes && held(testenv.Owner, `UPDATE docs%`) && held(r.role, `commit`),
			"the commit did not reach the queue"
	})
	// What a scan holds the stream may want: it commits without the standby.
	db.MustExecSuper(`SET LOCAL synchronous_commit = local; UPDATE embedsidecar.scan SET requested = requested + 1, phase = 'waiting'`)
	s.Reload()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM embedsidecar.scan WHERE phase = 'done' AND started = requested`) == 1,
			"the scan waits for the standby"
	})
	if err := server.Configure(map[string]string{"synchronous_standby_names": ""}); err != nil {
		t.Fatal(err)
	}
	db.MustExecSuper(`SELECT pg_reload_conf()`)
	for _, done := range []chan error{committed, probe} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	if n := r.embedder.sent("new"); n != 1 {
		t.Errorf("the new text was sent %d times, want 1", n)
	}
	r.verify()
}

func TestP2_ServerRestarts(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		server := testenv.Own(t, testenv.Options{Major: major})
		db := testenv.DB(t, testenv.On(server))
		db.MustExec(docs)
		r := newRig(t, db, column("docs", "body"))
		r.options = lossy
		s, _ := r.start()
		for i, mode := range []testenv.Mode{testenv.Fast, testenv.Immediate, testenv.Fast} {
			r.edit(fmt.Sprint("edit ", i, " "))
			if err := server.Restart(t.Context(), mode); err != nil {
				t.Fatal(err)
			}
			up := time.Now()
			db.Pool.Reset()
			db.Super().Reset()
			r.recovered(up)
			r.verify()
		}
		if gaps := s.Stream().Gaps.Load(); gaps != 0 {
			t.Errorf("%d gaps after restarts, want none", gaps)
		}
		if failed := r.count(`SELECT count(*) FROM embedsidecar.task`); failed != 0 {
			t.Errorf("%d tasks left", failed)
		}
	})
}

func TestP2_GapsAreFoundAndClosed(t *testing.T) {
	t.Parallel()
	while := map[string]func(r *rig){
		"slot dropped": func(r *rig) {
			r.edit("during ")
			r.db.MustExec(`SELECT pg_drop_replication_slot($1)`, r.slot)
			r.edit("after ")
		},
		"slot advanced": func(r *rig) {
			r.edit("during ")
			r.db.MustExec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
		},
		"slot made again": func(r *rig) {
			r.db.MustExec(`SELECT pg_drop_replication_slot($1)`, r.slot)
			r.edit("between ")
			r.db.MustExec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
		},
		"publication made again": func(r *rig) {
			r.db.MustExec(`DROP PUBLICATION ` + r.db.Name + `_pub`)
			r.db.MustExec(`CREATE PUBLICATION ` + r.db.Name + `_pub FOR TABLE docs`)
		},
		"publication made again, changes between": func(r *rig) {
			r.db.MustExec(`DROP PUBLICATION ` + r.db.Name + `_pub`)
			r.edit("between ")
			r.db.MustExec(`CREATE PUBLICATION ` + r.db.Name + `_pub FOR TABLE docs`)
		},
	}
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		while := maps.Clone(while)
		if major >= 18 { // no earlier one can alter that
			while["slot altered to send prepared transactions"] = func(r *rig) {
				conn, err := database.ConnectReplication(r.t.Context(), r.db.URL(testenv.Superuser), database.Options{})
				if err != nil {
					r.t.Fatal(err)
				}
				defer func() { _ = conn.Close(r.t.Context()) }()
				if _, err := conn.Exec(r.t.Context(), "ALTER_REPLICATION_SLOT "+r.slot+" (TWO_PHASE true)").ReadAll(); err != nil {
					r.t.Fatal(err)
				}
				if _, err := r.db.Pool.Exec(r.t.Context(), `BEGIN; UPDATE docs SET body = 'prepared ' || id; PREPARE TRANSACTION '`+
					r.slot+`'`, pgx.QueryExecModeSimpleProtocol); err != nil {
					r.t.Fatal(err)
				}
				r.db.MustExec(`COMMIT PREPARED '` + r.slot + `'`)
			}
		}
		for name, fault := range while {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t, testenv.Major(major))
				db.MustExec(docs)
				r := newRig(t, db, intoTable("docs", "body"))
				r.edit("before ")
				_, stop := r.start()
				r.settle()
				stop()
				r.released()
				fault(r)
				begin := time.Now()
				s, _ := r.start()
				r.recovered(begin)
				r.verify()
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return s.Stream().Gaps.Load() > 0,
						"the gap was not noticed"
				})
			})
		}
	})
}

func TestP2_APublicationDroppedWhileStreamingIsNoticed(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		r := newRig(t, db, intoTable("docs", "body"))
		r.edit("before ")
		s, _ := r.start()
		r.settle()
		db.MustExec(`DROP PUBLICATION ` + db.Name + `_pub`)
		r.edit("missed ")
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return !s.Stream().Streaming.Load(), "it streams on without a publication"
		})
		db.MustExec(`CREATE PUBLICATION ` + db.Name + `_pub FOR TABLE docs`)
		r.settle()
		r.verify()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return s.Stream().Gaps.Load() > 0,
				"the gap was not noticed"
		})
	})
}

func TestP2_TableChangesThatSendNothing(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.edit("before ")
	s, _ := r.start()
	r.settle()
	db.MustExec(`ALTER TABLE docs ALTER body TYPE text USING upper(body)`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().CatalogueScans.Load() > 0,
			"the rewrite was not noticed"
	})
	r.settle()
	r.verify()
	db.MustExec(`ALTER TABLE docs RENAME TO papers`)
	db.MustExec(`UPDATE papers SET body = body || '!'`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		name := testenv.Value[string](db, `SELECT table_name::text FROM embedsidecar.pipeline`)
		return name == "papers", name
	})
	r.settle()
	r.verify()
}

func TestP2_ADetachedPartitionLeavesNoOrphans(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
	db.MustExec(`CREATE TABLE docs_a PARTITION OF docs FOR VALUES FROM (0) TO (100)`)
	db.MustExec(`CREATE TABLE docs_b PARTITION OF docs FOR VALUES FROM (100) TO (200)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 199) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	s, _ := r.start()
	r.settle()
	r.verify()
	db.MustExec(`ALTER TABLE docs DETACH PARTITION docs_b`)
	db.MustExec(`DROP TABLE docs_b`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().CatalogueScans.Load() > 0, "the detached partition was not noticed"
	})
	r.settle()
	r.verify()
	db.MustExec(`CREATE TABLE docs_c (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs_c SELECT i, 'late ' || i FROM generate_series(200, 250) AS i`)
	scans := s.Stream().CatalogueScans.Load()
	db.MustExec(`ALTER TABLE docs ATTACH PARTITION docs_c FOR VALUES FROM (200) TO (300)`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().CatalogueScans.Load() > scans, "the attached partition was not noticed"
	})
	r.settle()
	r.verify()
}

// TestP1_ASoleDefaultPartition is compared when it comes, and when it comes back: it has no condition of its own.
func TestP1_ASoleDefaultPartition(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`CREATE TABLE rest (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO rest SELECT i, 'one ' || i FROM generate_series(1, 20) AS i`)
	for range 2 {
		db.MustExec(`ALTER TABLE docs ATTACH PARTITION rest DEFAULT`)
		r.noticed()
		r.settle()
		r.verify()
		db.MustExec(`ALTER TABLE docs DETACH PARTITION rest`)
		db.MustExec(`UPDATE rest SET body = 'two ' || id WHERE id < 4`)
		db.MustExec(`INSERT INTO rest VALUES (100, 'new')`)
		r.noticed()
		r.settle()
		db.MustExec(`DELETE FROM rest WHERE id = 100`)
	}
}

// TestP1_APartitionThatComesAndGoesUnseen: it is attached, its rows are embedded as they change, and it is detached,
// all between two looks at the catalogue, which is the same before and after. Its mark is written later if the row of
// its pipeline is locked meanwhile, and who ends before that has asked for a scan; and who ends after that scan.
func TestP1_APartitionThatComesAndGoesUnseen(t *testing.T) {
	t.Parallel()
	const locked, restart = "while its pipeline is locked", "while its pipeline is locked, by two sidecars"
	const scanned = "after its pipeline was locked, by two sidecars"
	for name, others := range map[string]int{"beside others": 1, "the only one": 0, locked: 1, restart: 1, scanned: 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
			if others > 0 {
				db.MustExec(`CREATE TABLE docs_a PARTITION OF docs FOR VALUES FROM (0) TO (100)`)
			}
			r := newRig(t, db, intoTable("docs", "body"))
			r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour } // who waits has the tables looked at
			s, stop := r.start()
			r.settle()
			var lock pgx.Tx
			if name == locked || name == restart || name == scanned {
				lock = r.locking("SELECT FROM embedsidecar.pipeline FOR NO KEY UPDATE")
			}
			db.MustExec(`CREATE TABLE docs_b PARTITION OF docs FOR VALUES FROM (100) TO (200)`)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(100, 109) AS i`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return r.count(`SELECT count(*) FROM docs_embedding`) == 10, "they are not embedded"
			})
			if name == restart {
				stop()
			}
			if lock != nil {
				r.rollback(lock)
			}
			if name == scanned {
				r.has(1, `SELECT count(*) FROM embedsidecar.scan WHERE requested > 1 AND started = requested AND phase = 'done'`)
				stop()
			}
			scans, noted := s.Stream().CatalogueScans.Load(), int64(1)
			db.MustExec(`ALTER TABLE docs DETACH PARTITION docs_b`)
			switch name {
			case restart:
				s, _ = r.start()
				scans, noted = 0, 0 // it finds the catalogue as it was
			case scanned:
				s, _ = r.start()
				scans = 0
			}
			r.settle()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return r.count(`SELECT count(*) FROM docs_embedding`) == 0, "vectors of rows that are gone stay"
			})
			if n := s.Stream().CatalogueScans.Load() - scans; n != noted {
				t.Errorf("%d scans", n)
			}
			r.verify()
		})
	}
}

func TestP2_TheNetworkBreaks(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	proxy := testenv.StartProxy(t, db.Server.Addr())
	r.url = db.URLVia(proxy.Addr(), r.role)
	r.options = lossy
	r.start()
	r.settle()
	for i := range 5 {
		proxy.CutAfter(testenv.ToClient, int64(100+1500*i)) // in the middle of a message
		begin := time.Now()
		r.edit(fmt.Sprint("cut ", i, " "))
		r.recovered(begin)
		r.edit(fmt.Sprint("whole ", i, " "))
		r.settle()
	}
	r.url = db.URL(r.role)
	r.verify()
}

// waiting is an embedder that gives no answer before others were asked, too.
type waiting struct {
	embed.Embedder
	once  sync.Once
	asked *atomic.Int32
	both  chan struct{} // closed when two were
}

func (w *waiting) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	w.once.Do(func() {
		if w.asked.Add(1) == 2 {
			close(w.both)
		}
	})
	select {
	case <-w.both:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return w.Embedder.Embed(ctx, kind, texts)
}

func TestTwoSidecars_OneStreamsBothWorkAndTheOtherTakesOver(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20000) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	// Each has something to do: whoever was asked first waits until the other was asked, too.
	var asked atomic.Int32
	both := make(chan struct{})
	r.options = func(o *sidecar.Options) {
		o.BatchRows, o.Loops = 32, 1
		e := &waiting{Embedder: r.embedder, asked: &asked, both: both}
		o.Embedder = func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) { return e, nil }
	}
	first, stop := r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return first.Stream() != nil && first.Stream().Streaming.Load(), "the first does not stream"
	})
	second, _ := r.start()
	r.settle()
	r.verify()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		a, b := first.States()[0].Worker.Embedded.Load(), second.States()[0].Worker.Embedded.Load()
		return a > 0 && b > 0 && a+b == 20000,
			fmt.Sprintf("the first embedded %d, the second %d, want both some and 20,000 together", a, b)
	})
	if second.Stream().Streaming.Load() {
		t.Error("both stream")
	}
	stop()
	ended := time.Now()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return second.Stream().Streaming.Load(),
			"the second does not take over"
	})
	r.edit("later ")
	r.recovered(ended)
	r.verify()
}
