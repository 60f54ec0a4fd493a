//go:build linux

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/failpoint"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// places are the places of the program where a sidecar is killed, each with the hits at which it dies.
var places = []struct {
	name string
	hits []int
}{
	{"queue/before-enqueue-commit", []int{1, 4}},
	{"queue/after-enqueue-commit", []int{1, 4}},
	{"replication/after-feedback", []int{1, 2}},
	{"worker/after-read", []int{1, 5}},
	{"worker/before-embed", []int{1, 4}},
	{"worker/after-embed", []int{1, 4}},
	{"worker/after-fence", []int{1, 4}},
	{"worker/before-commit", []int{1, 4}},
	{"worker/after-commit", []int{1, 4}},
	{"worker/before-scan-commit", []int{1, 2}},
}

// TestFailpoints kills a sidecar at each place where it matters most, while tables change, and lets another one go on.
// The first server takes the first hits and the next one the others, unless many kills are asked for.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	majors, all := testenv.Majors(t), fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills) > usualKills
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "citexts", "partitioned", "toasted", "filtered")
		for _, place := range places {
			t.Run(place.name, func(t *testing.T) {
				r := r.within(t)
				run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
					Seed:    uint64(major),
					Writers: 2, Pause: 5 * time.Millisecond,
				})
				if err != nil {
					t.Fatal(err)
				}
				for i, hit := range place.hits {
					if all || len(majors) == 1 || i == slices.Index(majors, major)%len(place.hits) {
						r.dieAt(place.name, hit)
					}
				}
				if _, err := run.Stop(); err != nil {
					t.Fatal(err)
				}
				t.Log(r.prove(r.run(), shapes))
			})
		}
	})
}

// within is the rig for a part of its test.
func (r *rig) within(t *testing.T) *rig {
	t.Helper()
	part := *r
	part.t = t
	part.dir = t.TempDir()
	return &part
}

// dieAt runs a sidecar until it dies at the hit-th time it passes a place.
func (r *rig) dieAt(place string, hit int) {
	r.t.Helper()
	c := r.run(fmt.Sprintf("%s=%s=kill@%d", failpoint.Env, place, hit))
	if place == "worker/before-scan-commit" {
		// What a TRUNCATE did to the rows is not in the WAL: it asks for a scan.
		r.db.MustExec(`BEGIN; LOCK TABLE public.integers IN ACCESS EXCLUSIVE MODE; CREATE TEMPORARY TABLE saved ON COMMIT DROP AS SELECT * FROM public.integers; TRUNCATE public.integers;
			INSERT INTO public.integers SELECT * FROM saved; COMMIT`)
	}
	if s := c.wait(waitTimeout); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		r.t.Fatalf("the sidecar ended with %v, want SIGKILL at %s:\n%s", c.cmd.ProcessState, place, c.tail())
	}
	r.neverAhead()
}

// TestFailpoints_AreAllUsed keeps the list of places whole.
func TestFailpoints_AreAllUsed(t *testing.T) {
	t.Parallel()
	hit := regexp.MustCompile(`failpoint\.Hit\("([^"]+)"\)`)
	known := map[string]bool{}
	for _, place := range places {
		known[place.name] = true
	}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range hit.FindAllSubmatch(source, -1) {
			if name := string(found[1]); !known[name] {
				t.Errorf("%s: nobody dies at %s", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
