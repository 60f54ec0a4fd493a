//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestRun_ARollbackEndsAsTheFileSays: a deployment changes a pipeline, adds one and removes one. Then the old file is
// deployed again, with each way to replace sidecars. Within a minute of the last step, plus working time, the set-up
// matches that file, with every vector.
func TestRun_ARollbackEndsAsTheFileSays(t *testing.T) {
	t.Parallel()
	const (
		before = "name: docs\ntable: public.docs\ncolumns: [title]\ninto: {table: docs_embedding}"
		after  = "name: docs\ntable: public.docs\ncolumns: [title, body]\nwhere: id > 1\ninto: {table: docs_embedding}"
		gone   = "name: gone\ntable: public.docs\ncolumns: [body]\ninto: {table: gone_embedding}"
		added  = "name: added\ntable: public.docs\ncolumns: [body]\ninto: {table: added_embedding}"
		most   = time.Minute
	)
	var (
		mu      sync.Mutex
		longest time.Duration
	)
	t.Cleanup(func() { t.Logf("the longest took %s", longest.Round(100*time.Millisecond)) })
	for _, form := range []struct {
		name   string
		signal os.Signal
		// replace replaces the running old sidecars by sidecars of the file, and returns these. It calls last when its last
		// step begins.
		replace func(r *rollback, file string, old []*daemon, last func()) []*daemon
	}{
		{"replace", syscall.SIGTERM, (*rollback).replace},
		{"replace after a kill", syscall.SIGKILL, (*rollback).replace},
		{"rolling", syscall.SIGTERM, (*rollback).roll},
		{"blue and green", syscall.SIGTERM, (*rollback).beside},
		{"blue and green after a kill", syscall.SIGKILL, (*rollback).beside},
		{"blue and green while blue still runs", syscall.SIGTERM, nil},
	} {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			r := &rollback{stage: newStage(t, 20), signal: form.signal}
			old, young := r.configured(before, gone), r.configured(after, added)
			begun := time.Now()
			running := []*daemon{r.up(old)}
			if form.name == "rolling" {
				running = append(running, r.up(old))
			}
			r.becomes("docs title, gone body")
			most := most + 5*time.Since(begun) // for the set-up, on a busy machine

			var began time.Time
			last := func() { began = time.Now() }
			if form.replace != nil {
				running = form.replace(r, young, running, last)
				r.becomes("added body, docs title,body")
				running = form.replace(r, old, running, last)
			} else {
				green := r.up(young)
				r.becomesWith("docs title,body", "added body") // while blue runs, its own pipelines stay
				last()
				r.stop(green)
			}
			r.becomes("docs title, gone body")
			took := time.Since(began)
			mu.Lock()
			longest = max(longest, took)
			mu.Unlock()
			t.Logf("as the file says after %s", took.Round(100*time.Millisecond))
			if took > most {
				t.Errorf("it took %s, want %s at most", took, most)
			}
			r.has(r.ended(old, "plan"), "nothing to change")
			r.ended(old, "verify", "--deep", "20")
			for _, d := range running {
				d.end(syscall.SIGTERM, 0)
			}
		})
	}
}

// rollback is a stage whose sidecars are replaced.
type rollback struct {
	*stage
	signal os.Signal // that ends them
}

// call runs the program as on a separate machine: every file has the same path.
func (r *rollback) call(file string, args ...string) *daemon {
	return r.prepared(func(c *exec.Cmd) { c.Dir = filepath.Dir(file) },
		append(args, "--config", "/proc/self/cwd/"+filepath.Base(file))...)
}

// up starts a sidecar and waits until it works.
func (r *rollback) up(file string) *daemon {
	d := r.call(file, "run", "--log-format", "json")
	d.logged("pipeline started", "pipeline")
	return d
}

// ended runs a command to its end, and returns what it wrote.
func (r *rollback) ended(file string, args ...string) string {
	d := r.call(file, args...)
	d.ends(0)
	return d.text()
}

func (r *rollback) stop(d *daemon) {
	status := 0
	if r.signal == syscall.SIGKILL {
		status = -1
	}
	d.end(r.signal, status)
}

// replace stops the old sidecar and starts the new one.
func (r *rollback) replace(file string, old []*daemon, last func()) []*daemon {
	r.stop(old[0])
	last()
	return []*daemon{r.up(file)}
}

// roll replaces sidecars one after another.
func (r *rollback) roll(file string, old []*daemon, last func()) (young []*daemon) {
	for _, d := range old {
		r.stop(d)
		last()
		young = append(young, r.up(file))
	}
	return young
}

// beside starts the new sidecar, and stops the old one once the new one works.
func (r *rollback) beside(file string, old []*daemon, last func()) []*daemon {
	young := r.up(file)
	last()
	r.stop(old[0])
	return []*daemon{young}
}

// becomes waits until exactly these pipelines are set up, with these columns and every vector.
func (r *rollback) becomes(want string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		got := strings.Join(r.setUp(), ", ")
		return got == want, got + ", want " + want
	})
	for name := range strings.SplitSeq(want, ", ") {
		r.stands(name[:strings.IndexByte(name, ' ')], health.UpToDate)
	}
}

// becomesWith waits until these pipelines are set up; others may be.
func (r *rollback) becomesWith(want ...string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		got := strings.Join(r.setUp(), ", ")
		for _, name := range want {
			if !strings.Contains(got, name) {
				return false, got
			}
		}
		return true, ""
	})
}

func (r *rollback) setUp() []string {
	return testenv.Values[string](r.db, `SELECT name || ' ' || array_to_string(source_columns, ',')
		FROM embedsidecar.pipeline ORDER BY name`)
}
