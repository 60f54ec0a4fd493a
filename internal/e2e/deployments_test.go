//go:build linux

package e2e

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// TestKills_Deployments replaces the sidecar again and again while tables change: what shall be embedded is set up
// anew, mostly with something added, changed or taken away, while the old process streams; a new one starts beside
// it; and one of the two ends, in good order or by kill -9, sometimes the new one first. Afterwards every vector of
// what is set up then is that of its row's text.
func TestKills_Deployments(t *testing.T) {
	t.Parallel()
	kills, seed := fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills), fromEnvironment(t, "EMBEDSIDECAR_SEED", 1)
	testenv.InTurn(t, 0, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "texts", "times", "composite", "partitioned", "full", "indexed",
			"filtered", "tokens")
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes,
			workload.Options{Seed: uint64(major + 100*seed), Writers: 2, Pause: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		d := &deployer{
			changed: map[string]int{},
			killer:  killer{rig: r, r: rand.New(rand.NewPCG(uint64(seed), uint64(major)))}, all: shapes,
			now: slices.Clone(shapes),
		}
		c := d.run()
		for d.kills < kills || len(d.moves) > 0 { // whatever can be changed is, at least once
			c = d.replace(c)
		}
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d kills, %d ends in good order; added %d, changed %v, removed %d; %s; %s", d.kills, d.stops, d.added,
			d.changed, d.removed, d.prove(c, d.now), done)
		if d.added == 0 || d.removed == 0 || len(d.changed) != len(alterations) {
			t.Errorf("added %d, changed %v, removed %d: the history lacks some of it", d.added, d.changed, d.removed)
		}
	})
}

// deployer is a killer that changes what is set up.
type deployer struct {
	killer
	all            []workload.Shape // with the pipelines as they were at first
	now            []workload.Shape // what is set up
	moves          []string         // what is still to come before any of it comes again
	added, removed int
	changed        map[string]int // by alteration
}

// alterations change what a pipeline is, and back. Its model is none of them: that never changes.
var alterations = map[string]struct {
	shape string
	alter func(s *workload.Shape, first workload.Shape)
}{
	"columns": {"integers", func(s *workload.Shape, first workload.Shape) {
		if len(s.Columns) > 1 {
			s.Columns = s.Columns[1:]
		} else {
			s.Columns = first.Columns
		}
	}},
	"text": {"filtered", func(s *workload.Shape, first workload.Shape) {
		s.Text = other(s.Text, first.Text, `coalesce(body, title)`)
	}},
	"filter": {"filtered", func(s *workload.Shape, first workload.Shape) {
		s.Filter = other(s.Filter, first.Filter, `published IS NOT FALSE`)
	}},
	"chunking": {"tokens", func(s *workload.Shape, first workload.Shape) {
		s.Chunking.Tokens = other(s.Chunking.Tokens, first.Chunking.Tokens, 24)
	}},
}

// other is the one of two that is not there.
func other[T comparable](now, one, two T) T {
	if now == one {
		return two
	}
	return one
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
		if s := old.wait(waitTimeout); s.ExitStatus() != 0 {
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
	if len(d.moves) == 0 {
		const same, moved = "", "moved"
		d.moves = append(slices.Sorted(maps.Keys(alterations)), same, moved, moved, moved)
		d.r.Shuffle(len(d.moves), func(i, j int) { d.moves[i], d.moves[j] = d.moves[j], d.moves[i] })
	}
	move := d.moves[0]
	d.moves = d.moves[1:]
	if a, is := alterations[move]; is {
		s := &d.now[d.at(a.shape)]
		a.alter(s, workload.Named(d.all, a.shape)[0])
		d.changed[move]++
	} else if move != "" {
		d.move()
	}
	specs := make([]pipeline.Spec, len(d.now))
	for i, s := range d.now {
		specs[i] = s.Spec()
	}
	d.asOwner("init", "--config", d.config(specs))
	d.grant()
}

// at is the place of a shape among those that are set up; -1: it is not.
func (d *deployer) at(name string) int {
	return slices.IndexFunc(d.now, func(s workload.Shape) bool { return s.Name == name })
}

// move adds a pipeline or takes one away, or does both with one: of those into embedding tables, which are taken up
// again as they were left.
func (d *deployer) move() {
	d.t.Helper()
	name := []string{"texts", "times"}[d.r.IntN(2)]
	at := d.at(name)
	if at < 0 {
		d.now = append(d.now, workload.Named(d.all, name)...)
		d.added++
		return
	}
	d.asOwner("uninstall", name, "--yes")
	d.removed++
	if d.r.IntN(2) == 0 {
		d.added++
	} else {
		d.now = slices.Delete(d.now, at, at+1)
	}
}

// asOwner runs a command as the tables' owner, until it succeeds: somebody may hold a lock.
func (d *deployer) asOwner(args ...string) {
	d.t.Helper()
	url, stream := d.url, d.stream
	defer func() { d.url, d.stream = url, stream }()
	d.url, d.stream = d.login(testenv.Owner), ""
	testenv.Eventually(d.t, waitTimeout, func() (bool, string) {
		c := d.start(nil, args...)
		s := c.wait(waitTimeout)
		return s.ExitStatus() == 0, c.tail()
	})
}

// grant lets the sidecar's role work what is set up.
func (d *deployer) grant() {
	d.t.Helper()
	pool, err := database.Connect(d.t.Context(), d.login(testenv.Owner), database.Options{
		MaxConns: 2,
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	defer pool.Close()
	loaded, err := resolve.Load(d.t.Context(), pool, d.slot)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range loaded {
		d.db.Grant(d.role, p)
	}
}
