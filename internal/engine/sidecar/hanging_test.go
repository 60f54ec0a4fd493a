package sidecar_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_AnEmbedderThatHangsKeepsNoOtherPipelineWaiting: while one does not say what it is, and while another one has a
// batch of a pipeline that was paused, other pipelines are started, paused and taken up.
func TestP5_AnEmbedderThatHangsKeepsNoOtherPipelineWaiting(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	db.MustExec(`CREATE TABLE third (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"), intoTable("notes", "body"), intoTable("third", "body"))
	db.MustExec(`UPDATE embedsidecar.pipeline SET plugin = CASE name WHEN 'docs' THEN 'mute' WHEN 'notes' THEN 'stuck' ELSE plugin END`)
	db.MustExec(`SELECT embedsidecar.pause('third')`)
	silent, stuck, speaks := mute{counter: r.embedder, speak: make(chan struct{})}, newCounter(), false
	r.options = func(o *sidecar.Options) {
		speaks := speaks
		o.Embedder = func(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
			switch {
			case p.Plugin == "mute" && !speaks:
				return silent, nil
			case p.Plugin == "stuck":
				return stuck, nil
			}
			return r.embedder, nil
		}
	}
	rows := int64(0)
	starts := func() (s *sidecar.Sidecar, stop func(), took time.Duration) {
		began := time.Now()
		s, stop = r.start()
		rows++
		db.MustExec(`INSERT INTO notes VALUES ($1, 'one')`, rows)
		r.has(rows, `SELECT count(*) FROM notes_embedding`)
		return s, stop, time.Since(began)
	}
	// The time that a silent embedder is given before its pipelines are said to wait is 5 s. A machine may stand still
	// for as long, yet hardly each time.
	var s *sidecar.Sidecar
	for try := 1; ; try++ {
		speaks = true
		_, stop, alone := starts()
		stop()
		r.released()
		speaks = false
		now, stop, took := starts()
		if took < alone+4*time.Second || try == 3 {
			if s = now; took >= alone+4*time.Second {
				t.Errorf("a pipeline was started after %s, and after %s where nobody hangs", took, alone)
			}
			break
		}
		stop()
		r.released()
	}
	db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)

	held, release := make(chan struct{}), make(chan struct{})
	stuck.hook(func(context.Context, []string) error {
		stuck.hook(nil)
		close(held)
		<-release // whatever the context says
		return nil
	})
	db.MustExec(`INSERT INTO notes VALUES (100, 'two')`)
	<-held
	db.MustExec(`SELECT embedsidecar.pause('notes')`)
	works := func(table string, want bool) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			said := ""
			for _, state := range s.States() {
				if state.Pipeline.Table == table && (state.Worker != nil) == want {
					return true, ""
				}
				said += fmt.Sprintf("%s: works %t, %s; ", state.Pipeline.Table, state.Worker != nil, state.Reason())
			}
			return false, said
		})
	}
	works("notes", false)
	db.MustExec(`SELECT embedsidecar.resume('notes')`) // it waits for its batch
	db.MustExec(`SELECT embedsidecar.resume('third')`)
	db.MustExec(`INSERT INTO third VALUES (1, 'one')`)
	r.has(1, `SELECT count(*) FROM third_embedding`)
	db.MustExec(`SELECT embedsidecar.pause('third')`)
	works("third", false)
	close(release)
	works("notes", true)
	close(silent.speak)
	works("docs", true)
	db.MustExec(`SELECT embedsidecar.resume('third')`)
	r.settle()
	r.has(1, `SELECT count(*) FROM docs_embedding`)
	r.has(rows+1, `SELECT count(*) FROM notes_embedding`)
}
