//go:build linux

package e2e

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/database"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/setup"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// TestKills_Deployments replaces the sidecar again and again while tables change: what shall be embedded is set up anew, mostly with something
// added, changed or taken away, while the old process streams; a new one starts beside it; and one of the two ends, in good order or by kill -9,
// sometimes the new one first. Afterwards every vector of what is set up then is that of its row's text.
func TestKills_Deployments(t *testing.T) {
	t.Parallel()
	kills, seed := fromEnvironment(t, "EMBEDSIDECAR_KILLS", 8), fromEnvironment(t, "EMBEDSIDECAR_SEED", 1)
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "texts", "times", "composite")
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{Seed: uint64(major + 100*seed), Writers: 2, Pause: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		d := &deployer{killer: killer{rig: r, r: rand.New(rand.NewPCG(uint64(seed), uint64(major)))}, all: shapes, now: slices.Clone(shapes)}
		c := d.run()
		for d.kills+d.stops < kills {
			c = d.replace(c)
		}
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d kills, %d ends in good order; added %d, changed %d, removed %d; %s; %s", d.kills, d.stops, d.added, d.changed, d.removed, d.prove(c, d.now), done)
	})
}

// deployer is a killer that changes what is set up.
type deployer struct {
	killer
	all                     []workload.Shape // with the pipelines as they were at first
	now                     []workload.Shape // what is set up
	added, changed, removed int
}

// replace sets up anew, starts a sidecar beside the old one, and ends one of them. It returns the one that is left.
func (d *deployer) replace(old *child) *child {
	d.t.Helper()
	if d.r.IntN(4) > 0 {
		d.streaming(old)
	}
	d.rest(500)
	d.change()
	young := d.run()
	d.rest(700)
	switch d.r.IntN(4) {
	case 0: // the new one dies first, and then the old one: what neither has heard of is for the next
		young.kill()
		old.kill()
		d.kills += 2
		d.neverAhead()
		return d.run()
	case 1:
		old.signal(syscall.SIGTERM)
		if s := old.wait(patience); s.ExitStatus() != 0 {
			d.t.Errorf("SIGTERM: the old one ended with %v:\n%s", old.cmd.ProcessState, old.tail())
		}
		d.stops++
	default:
		old.kill()
		d.kills++
	}
	d.neverAhead()
	return young
}

// change decides what the next deployment is about.
func (d *deployer) change() {
	d.t.Helper()
	moving := []string{"texts", "times"} // into embedding tables: these are taken up again as they were left
	name := moving[d.r.IntN(len(moving))]
	at := slices.IndexFunc(d.now, func(s workload.Shape) bool { return s.Name == name })
	switch move := d.r.IntN(5); {
	case move == 0: // the same once more
	case move == 1: // other columns
		s := &d.now[slices.IndexFunc(d.now, func(s workload.Shape) bool { return s.Name == "integers" })]
		if len(s.Columns) > 1 {
			s.Columns = s.Columns[1:]
		} else {
			s.Columns = workload.Named(d.all, s.Name)[0].Columns
		}
		d.changed++
	case at < 0:
		d.now = append(d.now, workload.Named(d.all, name)...)
		d.added++
	default:
		d.asOwner("uninstall", name, "--yes")
		d.removed++
		if d.r.IntN(2) == 0 { // and added at once
			d.added++
		} else {
			d.now = slices.Delete(d.now, at, at+1)
		}
	}
	specs := make([]pipeline.Spec, len(d.now))
	for i, s := range d.now {
		specs[i] = s.Spec()
	}
	d.asOwner("init", "--config", d.config(specs))
	d.grant()
}

// asOwner runs a command as the tables' owner, until it succeeds: somebody may hold a lock.
func (d *deployer) asOwner(args ...string) {
	d.t.Helper()
	url, stream := d.url, d.stream
	defer func() { d.url, d.stream = url, stream }()
	d.url, d.stream = d.login(testenv.Owner), ""
	testenv.Eventually(d.t, patience, func() (bool, string) {
		c := d.start(nil, args...)
		s := c.wait(patience)
		return s.ExitStatus() == 0, c.tail()
	})
}

// grant lets the sidecar's role work what is set up.
func (d *deployer) grant() {
	d.t.Helper()
	pool, err := database.Connect(d.t.Context(), d.login(testenv.Owner), database.Options{MaxConns: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		d.t.Fatal(err)
	}
	defer pool.Close()
	loaded, err := setup.Load(d.t.Context(), pool, d.slot)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range loaded {
		d.db.Grant(d.role, p)
	}
}
