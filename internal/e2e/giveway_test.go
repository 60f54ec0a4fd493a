//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestGiveWay_ToABusyHost has others keep all cores busy while rows change all the time: their work is put off, which
// everybody can see, and is done at once for somebody who waits for it.
func TestGiveWay_ToABusyHost(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoTable: "docs_embedding",
	})
	r.senderTimeout("1min")
	c := r.run("EMBEDSIDECAR_GIVE_WAY=10m")
	r.streaming(c)
	busy(t)
	changes := 0
	change := func() {
		changes++
		db.MustExec(`INSERT INTO docs SELECT n, $1 FROM generate_series(1, 3000) n
			ON CONFLICT (id) DO UPDATE SET body = excluded.body`, fmt.Sprint("text ", changes))
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		change()
		said := testenv.Value[string](db, `SELECT stream_detail FROM embedsidecar.workers`)
		return len(said) > 0, fmt.Sprintf("after %d changes it does not give way\n%s", changes, c.tail())
	})
	if !c.said("gives way: others keep all cores of this host busy") {
		t.Errorf("the log does not tell\n%s", c.tail())
	}
	change()
	began := time.Now()
	r.caughtUp()
	t.Logf("done %s after somebody had asked for it, after %d changes", time.Since(began).Round(time.Millisecond), changes)
	right := testenv.Value[int64](db, `SELECT count(*) FROM docs_embedding e JOIN docs d USING (id)
		WHERE e.text_hash = sha256(convert_to(d.body, 'UTF8'))`)
	if right != 3000 {
		t.Errorf("%d of 3000 vectors are those of their texts", right)
	}
}

// busy keeps all cores of the host busy, with what leaves them to whoever else wants them.
func busy(t *testing.T) {
	t.Helper()
	for range 2*runtime.NumCPU() + 2 {
		cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}
