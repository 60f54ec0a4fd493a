//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// asOwner does something as the owner of the tables.
func (r *rig) asOwner(f func()) {
	r.t.Helper()
	url, stream := r.url, r.stream
	r.url, r.stream = r.login(testenv.Owner), ""
	defer func() { r.url, r.stream = url, stream }()
	f()
}

// upgrades brings the schema to its version while others work.
func (r *rig) upgrades(by, pipelines string) {
	r.t.Helper()
	init := func() { r.asOwner(func() { r.setUp(nil, "--config", pipelines) }) }
	works := func(c *child) {
		r.t.Helper()
		testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return c.said("pipeline started"), c.tail()
		})
		c.terminate()
	}
	switch by {
	case "init":
		init()
	case "run":
		r.asOwner(func() { works(r.start(nil, "run", "--config", pipelines)) })
	case "no-init beside init":
		c := r.runPlain()
		testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return c.said("waiting for the schema to be upgraded"), c.tail()
		})
		init()
		works(c)
	}
	if n := r.count(`SELECT version FROM embedsidecar.schema_version`); n != sqlfiles.Version {
		r.t.Errorf("the schema has version %d, want %d", n, sqlfiles.Version)
	}
}

// P1: a schema is upgraded beside writers and beside a sidecar that works with the older one. What waits, what has
// failed and what is paused stays as it is; whatever statement the upgrade was in the way of is repeated.
func TestP1_AnUpgradeUnderWritesLosesNothing(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"init", "run", "no-init beside init"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			r, shapes := newShapes(t, 0, "integers", "filtered", "texts", "half_table")
			r.senderTimeout("1min")
			r.leisurely()
			old := r.run()
			r.streaming(old)
			r.asOwner(func() { r.do(0, "pause", "filtered") })
			run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
				Seed: 10, Writers: 2, Pause: 20 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			const paused = `SELECT count(*) FROM embedsidecar.task JOIN embedsidecar.pipeline USING (pipeline_id)
				WHERE name = 'filtered'`
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				old.mustLive()
				n := r.count(paused)
				return n >= 20 && r.sent() > 50, fmt.Sprintf("%d tasks wait: %s", n, old.tail())
			})
			// Of rows that nobody changes, so that these tasks stay as they are.
			r.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at)
				SELECT p.pipeline_id, 900000000 + n, s, 1, '3', '0/10', '0/20', now() FROM embedsidecar.pipeline AS p,
				unnest('{failed,failed,cancelled}'::embedsidecar.task_state[]) WITH ORDINALITY AS x (s, n)
				WHERE p.name <> 'texts'`)
			for range min(5, fromEnvironment(t, "EMBEDSIDECAR_KILLS", 2)) {
				r.db.TakeBack()
				r.upgrades(by, filepath.Join(r.dir, "pipelines.yaml"))
				old.mustLive()
			}
			if _, err := run.Stop(); err != nil {
				t.Fatal(err)
			}
			if n := r.count(paused + ` AND enabled`); n != 0 {
				t.Error("the paused pipeline is not paused any more")
			}
			if n := r.count(paused + ` AND state = 'todo'`); n < 20 {
				t.Errorf("%d of its tasks wait, want those that waited before", n)
			}
			if n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE row_key LIKE '90000000_' AND state IN ('failed', 'cancelled')`); n != 9 {
				t.Errorf("%d of 9 tasks that nobody works are left", n)
			}
			r.asOwner(func() { r.do(0, "resume", "filtered") })
			r.db.MustExec(`SELECT embedsidecar.retry_failed(name), embedsidecar.requeue(name) FROM embedsidecar.pipeline`)
			t.Log(r.prove(old, shapes))
			r.understood(old)
		})
	}
}

// understood looks for what a sidecar of an older version was told by the server and did not understand.
func (r *rig) understood(c *child) {
	r.t.Helper()
	log, err := os.ReadFile(c.log)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "ES0001") || strings.Contains(line, "_check") {
			r.t.Errorf("logged: %s", line)
		}
	}
}
