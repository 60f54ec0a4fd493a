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

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// place is one of the program at which a sidecar is killed, with the hits at which it dies.
type place struct {
	name string
	hits []int
	also string                      // further failpoints, which lead there
	meet func(r *rig, c *child) bool // does what leads there; false: in vain
}

// usualPlaces are those on the way through the queue, with the stream and the scan.
var usualPlaces = []place{
	{name: "queue/before-enqueue-commit", hits: []int{1, 4}},
	{name: "queue/after-enqueue-commit", hits: []int{1, 4}},
	{name: "replication/after-feedback", hits: []int{1, 2}},
	{name: "worker/after-read", hits: []int{1, 5}},
	{name: "worker/before-embed", hits: []int{1, 4}},
	{name: "worker/after-embed", hits: []int{1, 4}},
	{name: "worker/after-fence", hits: []int{1, 4}},
	{name: "worker/before-commit", hits: []int{1, 4}},
	{name: "worker/after-commit", hits: []int{1, 4}},
	{name: "worker/before-scan-commit", hits: []int{1, 2}, meet: truncated},
}

// directPlaces are those of changes that are worked at once, in the order of their steps. None makes a batch slow,
// which would lead to the queue: the streamer stands still before a worker has the changes.
var directPlaces = []place{
	{name: "direct/handed", hits: []int{1, 4}},
	{name: "direct/screened", hits: []int{1, 4}},
	{name: "direct/after-read", hits: []int{1, 4}},
	{name: "direct/before-embed", hits: []int{1, 4}},
	{name: "direct/after-embed", hits: []int{1, 4}},
	{name: "direct/after-fence", hits: []int{1, 4}},
	{name: "direct/before-commit", hits: []int{1, 4}},
	{name: "direct/after-commit", hits: []int{1, 4}},
	{name: "replication/after-direct", hits: []int{1, 4}},
	{name: "direct/left", hits: []int{1, 2}, also: "direct/before-embed=error@2+"},
	{name: "direct/closed", hits: []int{1, 1}, also: standing, meet: replaced},
	{name: "direct/interrupted", hits: []int{1, 1}, also: standing, meet: stopped},
}

const standing = "direct/handed=sleep(150ms)@2+"

// atOnce has changes worked at once however long batches take: a busy machine has none that are quick. It is no place
// at which anybody dies.
const atOnce = "worker/taken-for-quick"

// TestFailpoints kills a sidecar at each place where it matters most, while tables change, and lets another one go on.
// The first server takes the first hits and the next one the others, unless many kills are asked for.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "citexts", "partitioned", "toasted", "filtered")
		for _, place := range usualPlaces {
			t.Run(place.name, func(t *testing.T) {
				r.within(t).dieAtAll(shapes, major, workload.Options{Writers: 2, Pause: 5 * time.Millisecond}, place)
			})
		}
	})
}

// TestFailpoints_Direct does so while changes come few at a time, and are worked at once.
func TestFailpoints_Direct(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "citexts", "partitioned", "toasted", "filtered")
		r.countWays()
		r.dieAtAll(shapes, major, workload.Options{
			Writers: 1, Pause: 30 * time.Millisecond, Without: []string{"bulk", "truncate"},
		}, directPlaces...)
	})
}

// dieAtAll runs sidecars that die at places while tables change, and then one that lives.
func (r *rig) dieAtAll(shapes []workload.Shape, major int, o workload.Options, places ...place) {
	r.t.Helper()
	majors, all := testenv.Majors(r.t), fromEnvironment(r.t, "EMBEDSIDECAR_KILLS", usualKills) > usualKills
	o.Seed = uint64(major)
	run, err := workload.Start(r.t.Context(), r.db.URL(testenv.Owner), shapes, o)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range places {
		for j, hit := range places[i].hits {
			if all || len(majors) == 1 || j == slices.Index(majors, major)%len(places[i].hits) {
				r.dieAt(&places[i], hit)
			}
		}
	}
	if _, err := run.Stop(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(r.prove(r.run(), shapes))
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
func (r *rig) dieAt(p *place, hit int) {
	r.t.Helper()
	spec := fmt.Sprintf("%s=%s=kill@%d;%s", failpoint.Env, p.name, hit, p.also)
	if slices.ContainsFunc(directPlaces, func(d place) bool { return d.name == p.name }) {
		spec += ";" + atOnce + "=error"
	}
	for {
		c := r.run(spec)
		if p.meet != nil && !p.meet(r, c) {
			continue
		}
		if s := c.wait(waitTimeout); !s.Signaled() || s.Signal() != syscall.SIGKILL {
			r.t.Fatalf("the sidecar ended with %v, want SIGKILL at %s:\n%s", c.cmd.ProcessState, p.name, c.tail())
		}
		r.neverAhead()
		return
	}
}

// truncated asks for a scan: what a TRUNCATE did to the rows is not in the WAL.
func truncated(r *rig, _ *child) bool {
	r.db.MustExec(`BEGIN; LOCK TABLE public.integers IN ACCESS EXCLUSIVE MODE; CREATE TEMPORARY TABLE saved ON COMMIT DROP AS SELECT * FROM public.integers; TRUNCATE public.integers;
		INSERT INTO public.integers SELECT * FROM saved; COMMIT`)
	return true
}

// replaced has the pipelines' workers replaced by others, as a change of what is set up does, until the sidecar has
// died with changes for one that is gone.
func replaced(r *rig, c *child) bool {
	for !c.gone() {
		r.straightAgain(c)
		before := c.times("pipeline started")
		r.db.MustExec(`SELECT embedsidecar.set_priority(name, CASE lane WHEN 2 THEN 'normal' ELSE 'high' END) FROM embedsidecar.pipeline`)
		testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
			return c.gone() || c.times("pipeline started") >= before+len(r.pipelines), "nobody has heard of it: " + c.tail()
		})
	}
	return true
}

// stopped asks the sidecar to end. It ends as it should if it has no change in hand just then.
func stopped(r *rig, c *child) bool {
	r.straightAgain(c)
	c.signal(syscall.SIGTERM)
	return c.wait(waitTimeout).ExitStatus() != 0
}

// straightAgain waits until the sidecar works a change at once, or has ended.
func (r *rig) straightAgain(c *child) {
	r.t.Helper()
	before := r.straight(true)
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		return c.gone() || r.straight(true) > before, "no change is worked at once: " + c.tail()
	})
}

// TestFailpoints_AreAllUsed keeps the list of places whole.
func TestFailpoints_AreAllUsed(t *testing.T) {
	t.Parallel()
	hit, either := regexp.MustCompile(`failpoint\.Hit\("([^"]+)"\)`), regexp.MustCompile(`reached\([^"]+, "([^"]+)"\)`)
	known, used := map[string]bool{
		atOnce:                true,
		"adopt/after-page":    true, // TestP1_AnAdoptionThatIsKilledGoesOn
		"adopt/before-resume": true, // TestImport_NothingOfAnotherProgramEndsBeforeItsPipelineWorks
		"app/request-taken":   true, // TestAsked_AKilledSidecarLeavesItsRequest
		"app/request-done":    true,
		"jobs/cancelled":      true, // TestBatch_EndsWithItsPipeline

		"jobs/patience-is-over": true, // nobody dies there
	}, map[string]bool{}
	for _, place := range slices.Concat(usualPlaces, directPlaces, budgetPlaces) {
		known[place.name] = true
	}
	for _, name := range batchPlaces {
		known[name] = true
	}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		var names []string
		for _, found := range hit.FindAllSubmatch(source, -1) {
			names = append(names, string(found[1]))
		}
		for _, found := range either.FindAllSubmatch(source, -1) {
			names = append(names, "worker/"+string(found[1]), "direct/"+string(found[1]))
		}
		for _, name := range names {
			used[name] = true
			if !known[name] {
				t.Errorf("%s: nobody dies at %s", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if !used[name] {
			t.Errorf("there is no place %s", name)
		}
	}
}
