package sidecar_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestRun_SaysThatTheDrainTimeoutWasHit: what was broken off at the end is told, and is done by the next who comes.
func TestRun_SaysThatTheDrainTimeoutWasHit(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec("CREATE TABLE docs (id bigint PRIMARY KEY, body text)")
	db.MustExec("INSERT INTO docs VALUES (1, 'one')")
	r := newRig(t, db, intoTable("docs", "body"))
	var log recorder
	r.options = func(o *sidecar.Options) { o.DrainTimeout, o.Log = 50*time.Millisecond, log.logger() }
	held := make(chan struct{}, 1)
	r.embedder.hook(func(ctx context.Context, _ []string) error {
		select {
		case held <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	})
	_, stop := r.start()
	<-held
	stop()
	if !strings.Contains(log.text(), "drain timeout") {
		t.Errorf("the log does not tell of the drain timeout:\n%s", log.text())
	}
	r.embedder.hook(nil)
	log.buf.Reset()
	r.options = func(o *sidecar.Options) { o.DrainTimeout, o.Log = time.Hour, log.logger() }
	_, stop = r.start()
	r.settle()
	stop()
	r.verify()
	if strings.Contains(log.text(), "drain timeout") {
		t.Errorf("nothing was broken off, and the log tells of it:\n%s", log.text())
	}
}
