//go:build linux

package e2e

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// TestKills_LiveConfiguration changes the file of a running sidecar again and again, under writes and searches:
// pipelines are added, changed and removed, files are broken, and the sidecar is killed, mostly while it takes a change
// over. Afterwards every vector of what is configured is that of its row's text, and no search failed but for a kill.
func TestKills_LiveConfiguration(t *testing.T) {
	t.Parallel()
	changes := fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills)
	seed := fromEnvironment(t, "EMBEDSIDECAR_SEED", 1)
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "texts", "times", "composite", "filtered", "tokens")
		r.url, r.stream = r.login(testenv.Owner), ""
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes,
			workload.Options{Seed: uint64(major + 100*seed), Writers: 2, Pause: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l := &liveDeployer{
			deployer: deployer{
				changed: map[string]int{}, killer: killer{rig: r, r: rand.New(rand.NewPCG(uint64(seed), uint64(major)))},
				all: shapes, now: slices.Clone(shapes),
			},
			file: filepath.Join(r.dir, "live.yaml"),
		}
		searching, stop := context.WithCancel(t.Context())
		searched := make(chan struct{})
		l.write()
		c := l.begin()
		r.streaming(c)
		go func() {
			defer close(searched)
			l.search(searching)
		}()
		for n := 0; n < changes || len(l.moves) > 0; n++ {
			c = l.change(c)
		}
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		l.inForce()
		stop()
		<-searched
		t.Logf("%d kills, %d broken files; added %d, changed %v, removed %d; %d searches; %s; %s", l.kills, l.broken,
			l.added, l.changed, l.removed, l.asked.Load(), l.prove(c, l.now), done)
		if l.added == 0 || l.removed == 0 || l.broken == 0 || l.kills == 0 || len(l.changed) != len(alterations) ||
			l.asked.Load() == 0 {
			t.Error("the history lacks some of it")
		}
	})
}

// liveDeployer is a deployer by one file.
type liveDeployer struct {
	deployer

	file   string
	broken int
	killed atomic.Int64 // how often the sidecar was killed, or was not there
	asked  atomic.Int64
}

// begin starts a sidecar that follows the file.
func (l *liveDeployer) begin() *child {
	l.t.Helper()
	return l.start(nil, "run", "--config", l.file, "--set", "lease="+short.String(), "--workers", "2",
		"--set", "retry.initial=100ms", "--set", "retry.max=1s")
}

// write puts what is to be configured into the place of the file, as editors do.
func (l *liveDeployer) write() {
	l.t.Helper()
	specs := make([]pipeline.Spec, len(l.now))
	for i, s := range l.now {
		specs[i] = s.Spec()
	}
	if err := os.Rename(l.config(specs), l.file); err != nil {
		l.t.Fatal(err)
	}
}

// change makes the next change of the file; the sidecar is killed in the middle of some.
func (l *liveDeployer) change(c *child) *child {
	l.t.Helper()
	const broken, moved = "broken", "moved"
	if len(l.moves) == 0 {
		l.moves = append(slices.Sorted(maps.Keys(alterations)), broken, moved, moved, moved, moved)
		l.r.Shuffle(len(l.moves), func(i, j int) { l.moves[i], l.moves[j] = l.moves[j], l.moves[i] })
	}
	move := l.moves[0]
	l.moves = l.moves[1:]
	a, alters := alterations[move]
	switch {
	case alters:
		s := &l.now[l.at(a.shape)]
		a.alter(s, workload.Named(l.all, a.shape)[0])
		l.changed[move]++
	case move == moved:
		l.moveInFile()
	default:
		text, err := os.ReadFile(l.file)
		if err == nil {
			err = os.WriteFile(l.file, text[:l.r.IntN(len(text))], 0o600)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		l.broken++
		l.rest(600)
	}
	l.write()
	l.rest(1500)
	if l.r.IntN(3) > 0 {
		c.mustLive()
		return c
	}
	l.killed.Add(1)
	for n := 1 + l.r.IntN(2); n > 0; n-- { // a second time while it starts
		c.kill()
		l.kills++
		l.neverAhead()
		c = l.begin()
		l.rest(400)
	}
	l.streaming(c)
	l.killed.Add(1)
	return c
}

// moveInFile adds a pipeline or takes one out.
func (l *liveDeployer) moveInFile() {
	name := []string{"texts", "times"}[l.r.IntN(2)]
	if at := l.at(name); at >= 0 {
		l.now = slices.Delete(l.now, at, at+1)
		l.removed++
		return
	}
	l.now = append(l.now, workload.Named(l.all, name)...)
	l.added++
}

// inForce waits until what is set up is what the file says.
func (l *liveDeployer) inForce() {
	l.t.Helper()
	testenv.Eventually(l.t, waitTimeout, func() (bool, string) {
		said := l.do(0, "plan", "--config", l.file)
		return strings.Contains(said, "nothing to change"), said
	})
}

// search asks again and again in a pipeline that is always configured, until ctx ends.
func (l *liveDeployer) search(ctx context.Context) {
	conn, err := pgx.Connect(ctx, l.db.URL(testenv.Owner))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for ctx.Err() == nil {
		calm, found := l.killed.Load(), 0
		_, err := conn.Exec(ctx, `CALL embedsidecar.ask('integers', 'a question')`)
		if err == nil {
			err = conn.QueryRow(ctx, `SELECT count(*) FROM embedsidecar.search('integers', 'a question', 3)`).Scan(&found)
		}
		if l.asked.Add(1); ctx.Err() == nil && l.killed.Load() == calm && calm%2 == 0 && err != nil {
			l.t.Errorf("a search with nothing killed: %v", err)
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}
