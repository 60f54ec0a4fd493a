//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// ways are how the kills of TestKills are spread: with changes worked straight from the stream, never so, and now this
// way, now that: a process has the other setting than the one before, or an embedder that takes a few texts quickly
// and many slowly. In most processes that work changes at once they do so however slow the machine is.
var ways = []struct {
	name   string
	lives  [][]string // variables of a process, by chance
	direct bool       // changes must have been worked at once
}{
	{"direct", [][]string{{whatever}, {whatever}, nil}, true},
	{"queue", [][]string{{throughQueue}}, false},
	{"switching", [][]string{{whatever}, {throughQueue}, {"EMBEDSIDECAR_PLUGIN_FAULTS=cost=3ms/text"}}, true},
}

const (
	whatever     = failpoint.Env + "=" + atOnce + "=error"
	throughQueue = "EMBEDSIDECAR_WORKERS_DIRECT=false"
	mostDirect   = 500 // changes are worked at once: whoever dies with them has no lease to lose
)

// TestKills kills the sidecar and its plugin at random moments while tables of every kind change, with the direct way,
// without it and now and then. Afterwards every vector is that of its row's text, and no text was embedded more often
// than it changed or its batch was lost.
func TestKills(t *testing.T) {
	t.Parallel()
	kills, seed := fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills), fromEnvironment(t, "EMBEDSIDECAR_SEED", 1)
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major)
		r.countVersions(shapes)
		r.countLost()
		r.countWays()
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes,
			workload.Options{Seed: uint64(major + 100*seed), Writers: 3, Pause: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		k := &killer{rig: r, r: rand.New(rand.NewPCG(uint64(seed), uint64(major)))}
		begin, unleased := time.Now(), 0
		for i, way := range ways {
			before, direct, queued := k.kills, r.straight(true), r.straight(false)
			k.lives, k.fresh = way.lives, true
			for k.kills < kills*(i+1)/len(ways) {
				k.fault()
			}
			r.disconnected()
			direct, queued = r.straight(true)-direct, r.straight(false)-queued
			t.Logf("%s: %d kills; %d changes straight from the stream, %d through the queue", way.name, k.kills-before, direct,
				queued)
			if way.direct {
				unleased += k.kills - before
			}
			if way.direct != (direct > 0) {
				t.Errorf("%s: %d changes were worked at once", way.name, direct)
			}
		}
		killing := time.Since(begin)
		last := r.run()
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		found := r.prove(last, shapes)
		versions, sent, lost := r.count(`SELECT count(*) FROM public.versions`), r.sent(), r.lost()+unleased*mostDirect
		t.Logf("%d kills of the sidecar, %d of the plugin, %d stops, %d reloads in %s; %s; texts embedded %d of %d versions, %d lost at most; %s",
			k.kills, k.plugins, k.stops, k.reloads, killing.Round(time.Second), found, sent, versions, lost, done)
		if most := versions + lost; sent > most {
			t.Errorf("%d texts were sent to the embedder, want at most %d: %d versions and %d tasks and changes that were lost",
				sent, most, versions, lost)
		}
	})
}

// disconnected waits until the server has noticed the death of all sidecars: what they had sent may still be committed.
func (r *rig) disconnected() {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		n := r.count(`SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, r.role)
		return n == 0, fmt.Sprintf("%d connections are left", n)
	})
}

// TestKills_Chunks does the same to tables whose texts are cut into chunks: no row is ever left with chunks of two
// texts.
func TestKills_Chunks(t *testing.T) {
	t.Parallel()
	killsBeside(t, 0, 2, "markdowns", "sentences", "tokens")
}

// TestKills_Joins does the same to tables whose texts have parts from other tables, which change with them.
func TestKills_Joins(t *testing.T) {
	t.Parallel()
	killsBeside(t, 1, 3, "listed", "owned", "placed")
}

// killsBeside kills sidecars while tables of these shapes change, as often as TestKills does; a quarter as often where
// nobody asks for more.
func killsBeside(t *testing.T, turn int, seed uint64, names ...string) {
	t.Helper()
	testenv.InTurn(t, turn, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, names...)
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
			Seed:    uint64(major),
			Writers: 2, Pause: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		k := &killer{rig: r, r: rand.New(rand.NewPCG(seed, uint64(major)))}
		for range fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills/4+1) {
			k.fault()
		}
		last := r.run()
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d kills of the sidecar, %d of the plugin, %d stops; %s; %s", k.kills, k.plugins, k.stops,
			r.prove(last, shapes), done)
	})
}

// killer does damage and keeps count.
type killer struct {
	*rig
	r              *rand.Rand
	kills, plugins int
	stops, reloads int
	rounds         int
	lives          [][]string // further variables of sidecars, by chance; none: nothing more
	fresh          bool       // the next one has the first of them, and comes to work
}

// fault starts a sidecar and ends it, mostly by kill -9 at a random moment, also while it is still starting.
func (k *killer) fault() {
	k.t.Helper()
	k.rounds++
	life, fresh, before := k.life(), k.fresh, 0
	k.fresh = false
	if slices.Contains(life, whatever) {
		before = k.straight(true)
	}
	c := k.run(life...)
	if fresh || k.r.IntN(4) > 0 {
		k.streaming(c)
		if slices.Contains(life, whatever) {
			k.straightOn(c, before+1+k.r.IntN(30))
		}
	}
	k.rest(700)
	switch {
	case k.rounds%6 == 4:
		k.streaming(c) // now it listens
		c.signal(syscall.SIGHUP)
		k.reloads++
		k.rest(300)
	case k.rounds%7 == 3:
		k.killPlugin(c)
	case k.rounds%10 == 5:
		k.stopBeyondLease(c)
	}
	c.kill()
	k.kills++
	k.neverAhead()
}

// straightOn waits until so many changes have been worked at once: what has gathered before goes through the queue.
func (k *killer) straightOn(c *child, changes int) {
	k.t.Helper()
	testenv.Eventually(k.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		n := k.straight(true)
		return n >= changes, fmt.Sprintf("%d changes worked at once, not %d\n%s", n, changes, c.tail())
	})
}

// life chooses the variables of the next sidecar.
func (k *killer) life() []string {
	switch {
	case len(k.lives) == 0:
		return nil
	case k.fresh:
		return k.lives[0]
	}
	return k.lives[k.r.IntN(len(k.lives))]
}

func (k *killer) rest(ms int) { pause(k.t.Context(), time.Duration(k.r.IntN(ms))*time.Millisecond) }

// killPlugin kills the plugin of a sidecar, which must start another one.
func (k *killer) killPlugin(c *child) {
	k.t.Helper()
	k.streaming(c)
	var ids []int
	testenv.Eventually(k.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		ids = k.rig.plugins()
		return len(ids) > 0, "no plugin"
	})
	for _, id := range ids {
		_ = syscall.Kill(id, syscall.SIGKILL)
	}
	k.plugins++
	testenv.Eventually(k.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		now := k.rig.plugins()
		return len(now) > 0 && now[0] != ids[0], "the plugin was not started again: " + c.tail()
	})
	k.rest(300)
}

// stopBeyondLease stops a sidecar for longer than its leases, lets another one work meanwhile, and lets it go on: it
// must not write what it had embedded before.
func (k *killer) stopBeyondLease(c *child) {
	k.t.Helper()
	k.streaming(c)
	c.signal(syscall.SIGSTOP)
	k.stops++
	other := k.run(k.life()...)
	pause(k.t.Context(), 2*short)
	c.signal(syscall.SIGCONT)
	k.rest(300)
	other.kill()
	k.kills++
}
