package sidecar_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// reason waits until a pipeline is not worked for a reason that holds every word, and returns the reason.
func reason(t *testing.T, s *sidecar.Sidecar, name string, words ...string) (found string) {
	t.Helper()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		for _, state := range s.States() {
			if state.Pipeline.Name != name {
				continue
			}
			found = state.Reason()
			for _, w := range words {
				if !strings.Contains(found, w) {
					return false, fmt.Sprintf("%s: %q lacks %q", name, found, w)
				}
			}
			return true, ""
		}
		return false, "no state of " + name
	})
	return found
}

// status waits until the database says that a pipeline has a status, and returns the detail.
func (r *rig) status(name string, want pipeline.Status) (detail string) {
	r.t.Helper()
	type row struct{ Status, Detail string }
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		got := testenv.Rows[row](r.db, `SELECT status, status_detail FROM embedsidecar.pipeline WHERE name = $1`, name)
		detail = got[0].Detail
		return got[0].Status == string(want), fmt.Sprint(got)
	})
	return detail
}

// has waits until a query gives a number.
func (r *rig) has(want int64, sql string, args ...any) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		n := r.count(sql, args...)
		return n == want, fmt.Sprintf("%d, want %d: %s", n, want, sql)
	})
}

// vectors counts the vectors of docs, wherever they are.
func vectors(spec pipeline.Spec) string {
	if spec.InSource() {
		return `SELECT count(embedding) FROM ` + spec.Table
	}
	return `SELECT count(*) FROM ` + spec.Table + `_embedding`
}

const notes = `CREATE TABLE notes (id bigint PRIMARY KEY, body text)`

func TestP2_RowsHiddenByRowSecurityAreNotTakenForDeleted(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		db.MustExec(notes)
		db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20) AS i`)
		r := newRig(t, db, spec("docs", "body"), spec("notes", "body"))
		s, _ := r.start()
		r.settle()
		r.verify()
		db.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
		db.MustExec(`UPDATE docs SET body = body || '!' WHERE id <= 5`)
		db.MustExec(`DELETE FROM docs WHERE id = 20`)
		db.MustExec(`INSERT INTO notes VALUES (1, 'meanwhile')`)
		reason(t, s, "docs", "row-level security", "BYPASSRLS")
		r.has(1, vectors(spec("notes")))
		r.status("docs", pipeline.Misconfigured)
		// Everything is there that was there, but for what went with its row.
		want := int64(20)
		if spec("docs").InSource() {
			want--
		}
		if n := r.count(vectors(spec("docs"))); n != want {
			t.Errorf("%d vectors while the rows are hidden, want %d", n, want)
		}
		if n := r.count(`SELECT count(*) FROM embedsidecar.ledger AS l JOIN embedsidecar.pipeline AS p USING (pipeline_id) WHERE p.name = 'docs'`); n != 20 {
			t.Errorf("%d ledger entries while the rows are hidden, want 20", n)
		}
		db.MustExecSuper(`ALTER ROLE ` + r.role + ` BYPASSRLS`) // what the reason says
		r.status("docs", pipeline.Active)
		r.settle()
		r.verify()
	})
}

func TestP5_AMissingGrantStopsOnePipelineAndIsNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec   pipeline.Spec
		revoke string
	}{
		"read the source":     {intoTable("docs", "body"), `SELECT (body) ON docs`},
		"write the column":    {column("docs", "body"), `UPDATE (embedding) ON docs`},
		"write the table":     {intoTable("docs", "body"), `INSERT ON docs_embedding`},
		"remove from a table": {intoTable("docs", "body"), `DELETE ON docs_embedding`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(notes)
			r := newRig(t, db, test.spec, intoTable("notes", "body"))
			r.edit("before ")
			s, _ := r.start()
			r.settle()
			db.MustExecSuper(`REVOKE ` + test.revoke + ` FROM ` + r.role)
			r.edit("after ")
			db.MustExec(`DELETE FROM docs WHERE id = 1`)
			db.MustExec(`INSERT INTO notes VALUES (1, 'meanwhile')`)
			why := reason(t, s, "docs", "GRANT ", `TO "`+r.role+`"`)
			r.has(1, `SELECT count(*) FROM notes_embedding`)
			if said := r.status("docs", pipeline.Misconfigured); said != strings.TrimPrefix(why, "misconfigured: ") {
				t.Errorf("the database says %q, the sidecar %q", said, why)
			}
			if n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE state = 'failed' OR attempt > 0`); n != 0 {
				t.Errorf("%d tasks were blamed", n)
			}
			for _, grant := range regexp.MustCompile(`GRANT [^;]*`).FindAllString(why, -1) {
				db.MustExecSuper(grant)
			}
			r.status("docs", pipeline.Active)
			r.settle()
			r.verify()
		})
	}
}

// The streamer and the supervisor both write a pipeline's status. The one's word is not the other's to take back.
func TestP10_AChangedTableKeepsTheReasonWhyItsPipelineWaits(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	newRig(t, db, intoTable("docs", "body"))
	super := db.Super()
	note := func(lack, detail string) (got string) {
		t.Helper()
		var id int32
		if err := super.QueryRow(t.Context(), `UPDATE embedsidecar.pipeline SET catalogue = '{}' RETURNING pipeline_id`).Scan(
			&id); err != nil {
			t.Fatal(err)
		}
		_, err := super.Exec(t.Context(), sqlfiles.Query("note_catalogue"), pgx.StrictNamedArgs{
			"pipeline_id": id, "lack": lack, "detail": detail, "catalogue": []byte(`{}`), "table_schema": "", "table_name": "",
		})
		if err != nil {
			t.Fatal(err)
		}
		return testenv.Values[string](db, `SELECT status || ': ' || status_detail FROM embedsidecar.pipeline`)[0]
	}
	db.MustExecSuper(`UPDATE embedsidecar.pipeline SET status = 'misconfigured', status_detail = 'no grant'`)
	for _, c := range []struct{ lack, detail, want string }{
		{"", "", "misconfigured: no grant"},
		{"missing", "dropped", "missing: dropped"},
		{"unpublished", "taken out", "unpublished: taken out"},
		{"", "", "active: "},
	} {
		if got := note(c.lack, c.detail); got != c.want {
			t.Errorf("after a note of %q the pipeline is %q, want %q", c.lack, got, c.want)
		}
	}
}

// A vector of an older text, written by anybody, is found: the ledger is what a change is compared with.
func TestP2_AVectorOfAnOlderTextIsFound(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs VALUES (1, 'old')`)
	r := newRig(t, db, column("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`UPDATE docs SET body = 'new'`)
	r.settle()
	stale := strings.ReplaceAll(fmt.Sprint(vector.Of("old", dims)), " ", ",")
	db.MustExec(`UPDATE docs SET embedding = $1::text::vector`, stale)
	r.settle()
	r.verify()
}

func TestP2_PreparedTransactionsCountWhenTheyCommit(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		server := testenv.Own(t, testenv.Options{Major: major}) // a transaction left open keeps slots from being made
		spec := oneOf(major)
		t.Helper()
		db := testenv.DB(t, testenv.On(server))
		db.MustExec(docs)
		r := newRig(t, db, spec("docs", "body"))
		r.edit("before ")
		_, stop := r.start()
		r.settle()
		prepare := func(name, sql string) {
			t.Helper()
			conn, err := db.Pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			for _, s := range []string{"BEGIN", sql, "PREPARE TRANSACTION '" + db.Name + name + "'"} {
				if _, err := conn.Exec(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
		prepare("a", `UPDATE docs SET body = body || ' kept' WHERE id <= 10`)
		prepare("b", `UPDATE docs SET body = body || ' lost' WHERE id BETWEEN 11 AND 20`)
		prepare("c", `DELETE FROM docs WHERE id BETWEEN 30 AND 40`)
		db.MustExec(`UPDATE docs SET body = body || ' other' WHERE id BETWEEN 21 AND 29`)
		r.settle()
		r.verify()
		sent := r.embedder.sent() // verify asks for them again
		stop()                    // a restart between the phases loses nothing
		db.MustExec(`COMMIT PREPARED '` + db.Name + `c'`)
		r.start()
		db.MustExec(`COMMIT PREPARED '` + db.Name + `a'`)
		db.MustExec(`ROLLBACK PREPARED '` + db.Name + `b'`)
		r.settle()
		sent = r.embedder.sent() - sent
		r.verify()
		// 1 to 10 but for 7: nothing of what was rolled back, nothing twice.
		if sent != 9 {
			t.Errorf("9 rows were changed by what was prepared and committed, %d texts were sent", sent)
		}
	})
}

// EMBEDSIDECAR_SUBTRANSACTIONS is how many there are.
func TestP1_SavepointsByTheThousands(t *testing.T) {
	t.Parallel()
	pairs := testenv.FromEnvironment(t, "EMBEDSIDECAR_SUBTRANSACTIONS", 6000) / 2
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	r.edit("before ")
	r.start()
	r.settle()
	sent := r.embedder.sent()
	// Every exception block is a subtransaction: half of them are rolled back, some within others.
	db.MustExec(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		BEGIN
			INSERT INTO docs VALUES (1000 + i, 'save ' || i);
			BEGIN UPDATE docs SET body = 'undone ' || i WHERE id = 1000 + i; RAISE SQLSTATE 'ZZ001'; EXCEPTION
			WHEN SQLSTATE 'ZZ001' THEN NULL; END;
			IF i %% 2 = 0 THEN RAISE SQLSTATE 'ZZ002'; END IF;
		EXCEPTION WHEN SQLSTATE 'ZZ002' THEN NULL; END;
	END LOOP; END $$`, pairs))
	r.settle()
	if n := r.embedder.sent() - sent; n != (pairs+1)/2 {
		t.Errorf("%d rows were kept, %d texts were sent", (pairs+1)/2, n)
	}
	r.verify()
}

func TestSlot_HeldBySomebodyElse(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	r.edit("before ")
	letGo := r.hold()
	log := &recorder{}
	var dials atomic.Int64
	r.options = func(o *sidecar.Options) {
		o.Log = log.logger()
		dial := o.Dial
		o.Dial = func(ctx context.Context) (*pgconn.PgConn, error) { dials.Add(1); return dial(ctx) }
	}
	s, _ := r.start()
	// It stands by, says who streams, and works what the queue has meanwhile.
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := log.text()
		return strings.Contains(said, "slot held by another process") && strings.Contains(said, "a stranger"), said
	})
	r.has(43, `SELECT count(*) FROM docs_embedding`)
	if s.Stream().Streaming.Load() {
		t.Error("it streams from a slot that another process holds")
	}
	if n := dials.Load(); n > 0 {
		t.Errorf("%d connections for replication, of which the server has few, though others hold the slot", n)
	}
	r.edit("after ")
	letGo()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().Streaming.Load(), "it does not take over"
	})
	r.settle()
	r.verify()
	if n := s.Stream().Gaps.Load(); n != 0 {
		t.Errorf("%d gaps though the stranger confirmed nothing", n)
	}
}

func TestServer_AwayAtTheStartAndLater(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, column("docs", "body"))
	proxy := testenv.StartProxy(t, db.Server.Addr())
	r.url = db.URLVia(proxy.Addr(), r.role)
	log := &recorder{}
	r.options = func(o *sidecar.Options) {
		lossy(o)
		o.Log = log.logger()
		proxy.Refuse() // after the pools were made, before it starts
		proxy.Cut()
	}
	s, _ := r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := log.text()
		return strings.Contains(said, "not started yet"), said
	})
	r.edit("before ")
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	r.settle()
	for i := range 2 {
		proxy.Refuse()
		proxy.Cut()
		r.edit(fmt.Sprint("away ", i, " "))
		if err := proxy.Accept(); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	r.url = db.URL(r.role)
	r.verify()
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
		t.Errorf("%d tasks left", n)
	}
	if n := s.Stream().Gaps.Load(); n != 0 {
		t.Errorf("%d gaps, want none", n)
	}
}
