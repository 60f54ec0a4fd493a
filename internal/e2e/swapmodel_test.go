//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// modelFolder is a folder of a model that is replaced as a whole.
type modelFolder struct {
	t    *testing.T
	path string
	n    int
}

// replace puts another model in its place, as a package manager or `models import` does.
func (f *modelFolder) replace(m onnxtest.Tiny, readme string) {
	f.t.Helper()
	f.n++
	files := m.Files()
	files["README.md"] = readme
	fresh := fmt.Sprintf("%s.%d", f.path, f.n)
	onnxtest.WriteFolder(f.t, fresh, files)
	if f.n > 1 {
		if err := os.Rename(f.path, fresh+".old"); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := os.Rename(fresh, f.path); err != nil {
		f.t.Fatal(err)
	}
}

// meansOf is the oracle of a model that is a table.
func meansOf(t *testing.T, m onnxtest.Tiny) workload.Embed {
	t.Helper()
	tokenizer, err := wordpiece.New([]byte(m.Files()["tokenizer.json"]))
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) ([]float32, bool) {
		ids, info := tokenizer.Encode(nil, text, onnxtest.TinyTokens)
		return m.Mean(ids), info.Content == 0
	}
}

// TestSwap_Model replaces the model's folder under a running sidecar with the plugin onnx and writers at work: by the
// same model with other papers, which it moves to without a failed task, and by another model, which it refuses, also
// when the plugin dies meanwhile.
func TestSwap_Model(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	shapes, err := workload.Create(t.Context(), db, workload.Named(workload.Shapes(dims), "integers", "texts"))
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp(programs, "m") //nolint:usetesting // t.TempDir has names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	right, wrong := onnxtest.Letters(dims, 1), onnxtest.Letters(dims, 2)
	folder := &modelFolder{t: t, path: filepath.Join(short, "letters")}
	folder.replace(right, "the first")

	r := &rig{
		t: t, db: db, slot: db.SlotName(), dir: t.TempDir(), url: db.URL(testenv.Owner) + "&connect_timeout=300",
		lease: time.Hour, also: []string{
			"EMBEDSIDECAR_PLUGIN_DIMS=", "EMBEDSIDECAR_PLUGIN=onnx", "EMBEDSIDECAR_MODEL=" + folder.path,
			"EMBEDSIDECAR_ONNXRUNTIME=" + onnxtest.Library(t),
			"EMBEDSIDECAR_THREADS=2", "EMBEDSIDECAR_CONTROL_DIR=" + filepath.Join(short, "c"),
		},
	}
	var specs []pipeline.Spec
	for _, shape := range shapes {
		spec := shape.Spec()
		spec.Plugin = "onnx"
		specs = append(specs, spec)
	}
	r.do(0, "init", "--config", r.config(specs))
	r.becomeRunRole()
	c := r.run()
	r.streaming(c)
	run, err := workload.Start(t.Context(), db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 9, Writers: 2,
		Pause: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	works := func() { // vectors go on being written
		t.Helper()
		from := testenv.Value[time.Time](db, `SELECT clock_timestamp()`)
		testenv.Eventually(t, patience, func() (bool, string) {
			c.mustLive()
			n := r.count(`SELECT count(*) FROM embedsidecar.ledger WHERE written_at > $1 AND text_hash IS NOT NULL`, from)
			return n > 20, fmt.Sprintf("%d vectors since: %s", n, c.tail())
		})
	}
	works()
	for n := range 3 {
		folder.replace(right, fmt.Sprint("other papers ", n))
		if said := r.do(0, "plugins", "reload", "onnx"); !strings.Contains(said, "reloaded") {
			t.Errorf("reload said: %s", said)
		}
		works()
	}

	folder.replace(wrong, "another model")
	if said := r.do(4, "plugins", "reload"); !strings.Contains(said, "vectors of both must not mix") ||
		!strings.Contains(said, "another destination") {
		t.Errorf("another model: %s", said)
	}
	works() // with the one that was loaded before
	folder.replace(right, "the last")
	r.do(0, "plugins", "reload")
	works()

	if n := r.failures(c); n > 0 {
		t.Errorf("%d failures in the log:\n%s", n, c.tail())
	}
	if failed := testenv.Values[string](db,
		`SELECT concat_ws(' ', row_key, state, error_class, error_code, error_message) FROM embedsidecar.task
		WHERE attempt > 0 OR losses > 0 OR lost_leases > 0 OR error_class = 'configuration'`); len(failed) > 0 {
		t.Errorf("%d tasks have failed: %q", len(failed), failed[:min(len(failed), 5)])
	}

	// A plugin that dies while another model is in its place finds that one when it starts again. Rows wait for the
	// right one.
	folder.replace(wrong, "another model")
	for _, pid := range r.plugins() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, patience, func() (bool, string) {
		c.mustLive()
		return c.said("vectors of both must not mix"), c.tail()
	})
	folder.replace(right, "the very last")
	r.do(0, "plugins", "reload") // it would try again by itself, after a pause
	works()
	if _, err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.explain(c) })
	t.Log(workload.Settle(t, db, shapes, meansOf(t, right), patience))
	r.caughtUp()
	r.do(0, "verify", "--deep", "1000000")
	c.terminate()
	r.nothingLeft()
}
