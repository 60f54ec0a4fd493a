package sidecar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// loses writes WAL and takes checkpoints until the server has given the slot up.
func (r *rig) loses() {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		r.db.MustExecSuper(`SELECT pg_switch_wal()`)
		r.db.MustExecSuper(`CHECKPOINT`)
		status := testenv.Value[string](r.db, `SELECT coalesce(wal_status, '') FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
		return status == "lost", "the slot is " + status
	})
}

// TestP2_ASlotLosesItsWAL: the server removes WAL that the slot needs, because max_slot_wal_keep_size says so. Once
// nobody streams meanwhile, and once a stream has stood still for too long. Every row is compared then.
func TestP2_ASlotLosesItsWAL(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major, Config: map[string]string{
			"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB",
		}})))
		db.MustExec(docs)
		r := newRig(t, db, oneOf(major)("docs", "body"))
		proxy := testenv.StartProxy(t, db.Server.Addr())
		r.url = db.URLVia(proxy.Addr(), r.role)
		r.options = lossy
		r.edit("before ")
		_, stop := r.start()
		r.settle()
		stop()
		r.released()
		r.edit("during ")
		r.loses()
		r.edit("after ")
		begin := time.Now()
		s, _ := r.start()
		r.recovered(begin)
		noticed := func(s *sidecar.Sidecar, least int64) {
			t.Helper()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return s.Stream().Gaps.Load() >= least, "the gap was not noticed"
			})
			r.url = db.URL(r.role)
			r.verify()
		}
		noticed(s, 1)
		proxy.Stall(testenv.ToClient, testenv.ToServer)
		r.edit("stalled ")
		r.loses()
		r.edit("and on ")
		begin = time.Now()
		proxy.Resume()
		r.recovered(begin)
		noticed(s, 2)
		if status := testenv.Value[string](db, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, r.slot); status == "lost" {
			t.Error("the slot is lost still")
		}
	})
}

// TestP2_AnIdleSlotIsInvalidated: from PostgreSQL 18 on a server may give up slots that nobody reads for a while.
func TestP2_AnIdleSlotIsInvalidated(t *testing.T) {
	t.Parallel()
	const major = 18
	server := testenv.Own(t, testenv.Options{
		Major: major, Config: map[string]string{"idle_replication_slot_timeout": "1s"},
	})
	db := testenv.DB(t, testenv.On(server))
	db.MustExec(docs)
	r := newRig(t, db, column("docs", "body"))
	r.edit("before ")
	_, stop := r.start()
	r.settle()
	stop()
	r.released()
	r.edit("during ")
	r.loses()
	if why := testenv.Value[string](db, `SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = $1`, r.slot); why != "idle_timeout" {
		t.Errorf("the slot is lost by %s", why)
	}
	r.edit("after ")
	begin := time.Now()
	s, _ := r.start()
	r.recovered(begin)
	r.verify()
	if n := s.Stream().Gaps.Load(); n != 1 {
		t.Errorf("%d gaps, want 1", n)
	}
}

// TestP10_AStandbyThatIsAwayIsNamed: from PostgreSQL 17 on a server keeps the changes of a slot that standbys copy back
// until the standbys that it was told of have them.
func TestP10_AStandbyThatIsAwayIsNamed(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{})
	if server.Major() < 17 {
		t.Logf("PostgreSQL %d waits for no standby: nothing is tried", server.Major())
		return
	}
	db := testenv.DB(t, testenv.On(server))
	db.MustExec(docs)
	r := newRig(t, db, column("docs", "body"))
	r.start()
	r.edit("before ")
	r.settle()
	told := func(want bool) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			reason := testenv.Value[string](db, `SELECT concat_ws(' ', status, reason, hints::text, may_miss::text)
				FROM embedsidecar.slot_states()`)
			return strings.HasPrefix(reason, "warn ") == want && strings.Contains(reason, "standby of slot away") == want, reason
		})
	}
	told(false)
	db.MustExecSuper(`SELECT pg_create_physical_replication_slot('away', true)`)
	db.MustExecSuper(`ALTER SYSTEM SET synchronized_standby_slots = 'away'`)
	db.MustExecSuper(`SELECT pg_reload_conf()`)
	told(true)
	r.edit("after ")
	told(true)
	db.MustExecSuper(`ALTER SYSTEM RESET synchronized_standby_slots`)
	db.MustExecSuper(`SELECT pg_reload_conf()`)
	told(false)
	r.settle()
	r.verify()
}

// TestP5_SidecarsThatRepairAtOnce: all of them find the same gap at the same moment. One makes the slot, the others
// look again, and none ends.
func TestP5_SidecarsThatRepairAtOnce(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	r.edit("before ")
	_, stop := r.start()
	r.settle()
	stop()
	for range 3 {
		r.released()
		db.MustExec(`SELECT pg_drop_replication_slot($1)`, r.slot)
		r.edit("during ")
		var stops []func()
		for range 3 {
			_, stop := r.start()
			stops = append(stops, stop)
		}
		r.settle()
		r.verify()
		for _, stop := range stops {
			stop()
		}
	}
}
