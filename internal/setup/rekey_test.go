package setup_test

import (
	"context"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A pipeline whose table got another key begins anew at once, whatever its ledger holds and whoever holds its tasks:
// the old keys go in portions afterwards, and nobody else's change waits for them.
func TestP5_AnotherKeyStopsNobody(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs(), side())
	b.init(o)
	fill := func() {
		b.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
			SELECT p.pipeline_id, i::text, '', '', 1, '0/1' FROM embedsidecar.pipeline AS p, generate_series(1, 6000) AS i`)
		b.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
			SELECT p.pipeline_id, i::text, 0, '3', '0/1', '0/1', now() FROM embedsidecar.pipeline AS p, generate_series(1,
			100) AS i`)
	}
	fill()
	old := testenv.Values[int32](b.Database, `SELECT pipeline_id FROM embedsidecar.pipeline ORDER BY 1`)
	lock := b.hold(`WITH l AS (SELECT FROM embedsidecar.ledger FOR UPDATE) SELECT (SELECT count(*) FROM l) FROM embedsidecar.task FOR UPDATE`)
	b.MustExec(`ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (id, title)`)
	o.Specs, o.LockTimeout = o.Specs[:1], 0
	if got := whats(b.init(o)); !slices.Contains(got, `changes of pipeline "docs": key, watched columns; with a scan`) {
		t.Errorf("made %q", got)
	}
	if err := lock.Rollback(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	state := `SELECT format('%s %s scan %s, generation %s', p.name, (SELECT count(*) FROM embedsidecar.ledger AS l
		WHERE l.pipeline_id = p.pipeline_id), s.phase, p.generation)
		FROM embedsidecar.pipeline AS p JOIN embedsidecar.scan AS s USING (pipeline_id) ORDER BY p.name`
	want := []string{"docs 0 scan waiting, generation 2", "side 6000 scan waiting, generation 1"}
	if got := testenv.Values[string](b.Database, state); !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	if n := testenv.Value[int](b.Database, `SELECT count(*) FROM embedsidecar.pipeline WHERE pipeline_id = $1`,
		old[0]); n != 0 {
		t.Error("the pipeline has its old number: what is known of old keys counts")
	}
	if rows, err := queue.DropLeftovers(t.Context(), b.pool); err != nil || rows != 6100 {
		t.Errorf("%d rows of old keys went, %v", rows, err)
	}
	if got := testenv.Values[string](b.Database, state); !slices.Equal(got, want) {
		t.Errorf("then there is %q, want %q", got, want)
	}
}
