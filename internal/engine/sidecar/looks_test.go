package sidecar_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_ATableWhoseRowsCannotBeNamedHasNothingLoaded: each of its changes requests a scan. For that, all pipelines
// were loaded again and all embedders described.
func TestP5_ATableWhoseRowsCannotBeNamedHasNothingLoaded(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	var loads atomic.Int32
	r.options = func(o *sidecar.Options) {
		load := o.Load
		o.Load = func(ctx context.Context) ([]pipeline.Pipeline, error) {
			loads.Add(1)
			return load(ctx)
		}
		o.Heartbeat = time.Hour // loads that it leads to are not counted
	}
	s, _ := r.start()
	r.settle()
	db.MustExec(`ALTER TABLE docs DROP CONSTRAINT docs_pkey`)
	s.Reload()
	reason(t, s, "docs", "no primary key")
	const changes, most = 300, 2 // a first look, and one that a client asked for
	before := loads.Load()
	for i := range changes {
		had := s.Stream().Changes.Load()
		db.MustExec(`INSERT INTO docs VALUES ($1, 'without a key')`, i)
		testenv.Eventually(t, waitTimeout, func() (bool, string) { return s.Stream().Changes.Load() > had, "not read" })
	}
	if n := loads.Load() - before; n > most {
		t.Errorf("%d changes had the pipelines loaded %d times", changes, n)
	}
	db.MustExec(`ALTER TABLE docs ADD PRIMARY KEY (id)`)
	s.Reload()
	r.works(s, "docs")
	r.settle()
	r.verify()
}

// TestReload_PausedAndResumedBetweenTwoLooks: what is loaded may be newer than the look that had it loaded. It is
// loaded again even if the next look finds all as the look before did.
func TestReload_PausedAndResumedBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"))
	var (
		armed atomic.Bool
		loads atomic.Int32
		lane  atomic.Value
	)
	r.options = func(o *sidecar.Options) {
		load := o.Load
		o.Load = func(ctx context.Context) ([]pipeline.Pipeline, error) {
			between := armed.CompareAndSwap(true, false)
			if between {
				db.MustExec(`SELECT embedsidecar.pause('docs')`)
			}
			loaded, err := load(ctx)
			if between {
				db.MustExec(`SELECT embedsidecar.resume('docs')`)
			}
			if err == nil {
				lane.Store(loaded[0].Priority)
			}
			loads.Add(1)
			return loaded, err
		}
	}
	s, _ := r.start()
	r.settle() // no scan waits any more, which every look tells of
	db.MustExec(`SELECT embedsidecar.set_priority('docs', 'high')`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return lane.Load() == pipeline.High, "no look has seen it"
	})
	armed.Store(true)
	before := loads.Load()
	s.Reload() // as a look does that has found something else
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return loads.Load() >= before+2, "not loaded again" })
	r.works(s, "docs")
}
