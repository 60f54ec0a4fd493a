//go:build linux

package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// TestKills kills the sidecar and its plugin at random moments while tables of every kind change. Afterwards every
// vector is that of its row's text, and no text was embedded more often than it changed or its batch was lost.
func TestKills(t *testing.T) {
	t.Parallel()
	kills, seed := fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills), fromEnvironment(t, "EMBEDSIDECAR_SEED", 1)
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major)
		r.countVersions(shapes)
		r.countLost()
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes,
			workload.Options{Seed: uint64(major + 100*seed), Writers: 3, Pause: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		k := &killer{rig: r, r: rand.New(rand.NewPCG(uint64(seed), uint64(major)))}
		begin := time.Now()
		for k.kills < kills {
			k.fault()
		}
		killing := time.Since(begin)
		last := r.run()
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		found := r.prove(last, shapes)
		versions, sent, lost := r.count(`SELECT count(*) FROM public.versions`), r.sent(), r.lost()
		t.Logf("%d kills of the sidecar, %d of the plugin, %d stops in %s; %s; texts embedded %d of %d versions, %d lost; %s",
			k.kills, k.plugins, k.stops, killing.Round(time.Second), found, sent, versions, lost, done)
		if most := versions + lost; sent > most {
			t.Errorf("%d texts were sent to the embedder, want at most %d: %d versions and %d tasks whose lease was lost", sent,
				most, versions, lost)
		}
	})
}

// TestKills_Chunks does the same to tables whose texts are cut into chunks: no row is ever left with chunks of two
// texts.
func TestKills_Chunks(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "markdowns", "sentences", "tokens")
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
			Seed:    uint64(major),
			Writers: 2, Pause: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		k := &killer{rig: r, r: rand.New(rand.NewPCG(2, uint64(major)))}
		for range fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills)/4 + 1 {
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
	stops          int
	rounds         int
}

// fault starts a sidecar and ends it, mostly by kill -9 at a random moment, also while it is still starting.
func (k *killer) fault() {
	k.t.Helper()
	k.rounds++
	c := k.run()
	if k.r.IntN(4) > 0 {
		k.streaming(c)
	}
	k.rest(700)
	switch {
	case k.rounds%7 == 3:
		k.killPlugin(c)
	case k.rounds%10 == 5:
		k.stopBeyondLease(c)
	}
	c.kill()
	k.kills++
	k.neverAhead()
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
	other := k.run()
	pause(k.t.Context(), 2*short)
	c.signal(syscall.SIGCONT)
	k.rest(300)
	other.kill()
	k.kills++
}
