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

// newModelRig makes tables whose pipelines are embedded by the plugin onnx, with the model in a folder.
func newModelRig(t *testing.T, folder *modelFolder) (*rig, []workload.Shape) {
	t.Helper()
	db := testenv.DB(t, testenv.Empty())
	shapes, err := workload.Create(t.Context(), db, workload.Named(workload.Shapes(dims), "integers", "texts"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, db: db, slot: db.SlotName(), dir: t.TempDir(), lease: time.Hour,
		also: []string{
			"EMBEDSIDECAR_PLUGIN_DIMS=", "EMBEDSIDECAR_PLUGIN=onnx", "EMBEDSIDECAR_MODEL=" + folder.path,
			"EMBEDSIDECAR_ONNXRUNTIME=" + onnxtest.Library(t), "EMBEDSIDECAR_THREADS=2",
			"EMBEDSIDECAR_CONTROL_DIR=" + filepath.Join(filepath.Dir(folder.path), "c"),
		},
	}
	r.url = r.login(testenv.Owner)
	specs := make([]pipeline.Spec, len(shapes))
	for i, shape := range shapes {
		specs[i] = shape.Spec()
		specs[i].Plugin = "onnx"
	}
	r.setUp(nil, "--config", r.config(specs))
	r.becomeRunRole()
	return r, shapes
}

// writesVectors waits until vectors go on being written.
func (r *rig) writesVectors(c *child) {
	r.t.Helper()
	from := testenv.Value[time.Time](r.db, `SELECT clock_timestamp()`)
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		n := r.count(`SELECT count(*) FROM embedsidecar.ledger WHERE written_at > $1 AND text_hash IS NOT NULL`, from)
		return n > 20, fmt.Sprintf("%d vectors since: %s", n, c.tail())
	})
}

// TestSwap_Model replaces the model's folder under a running sidecar with the plugin onnx and writers at work: by the
// same model with other papers, which it moves to without a failed task, and by another model, which it refuses, also
// when the plugin dies meanwhile.
func TestSwap_Model(t *testing.T) {
	t.Parallel()
	right, wrong := onnxtest.Letters(dims, 1), onnxtest.Letters(dims, 2)
	folder := &modelFolder{t: t, path: filepath.Join(shortFolder(t), "letters")}
	folder.replace(right, "the first")
	r, shapes := newModelRig(t, folder)
	c := r.run()
	r.streaming(c)
	run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 9, Writers: 2, Pause: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.writesVectors(c)
	for n := range 3 {
		folder.replace(right, fmt.Sprint("other papers ", n))
		if said := r.do(0, "plugins", "reload", "onnx"); !strings.Contains(said, "reloaded") {
			t.Errorf("reload said: %s", said)
		}
		r.writesVectors(c)
	}

	folder.replace(wrong, "another model")
	if said := r.do(4, "plugins", "reload"); !strings.Contains(said, "vectors of both must not mix") ||
		!strings.Contains(said, "another destination") {
		t.Errorf("another model: %s", said)
	}
	r.writesVectors(c) // with the one that was loaded before
	folder.replace(right, "the last")
	r.do(0, "plugins", "reload")
	r.writesVectors(c)
	r.noneHasFailed(c)

	// A plugin that dies while another model is in its place finds that one when it starts again. Rows wait for the
	// right one.
	folder.replace(wrong, "another model")
	for _, pid := range r.plugins() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return c.said("vectors of both must not mix"), c.tail()
	})
	folder.replace(right, "the very last")
	r.do(0, "plugins", "reload") // it would try again by itself, after a pause
	r.writesVectors(c)
	if _, err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.explain(c) })
	t.Log(workload.Settle(t, r.db, shapes, meansOf(t, right), waitTimeout))
	r.caughtUp()
	r.do(0, "verify", "--deep", "1000000")
	c.terminate()
	r.nothingLeft()
}
