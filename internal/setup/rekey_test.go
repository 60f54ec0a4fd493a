package setup_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
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

// TestP5_AnotherKeyBesideANextGeneration: both generations of a pipeline get another number, one of the key's, and the
// next one goes on beside the one that serves.
func TestP5_AnotherKeyBesideANextGeneration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec pipeline.Spec
		sql  string // with another key: an embedding table has that of before
		into [2]string
	}{
		"column": {docs(), ``, [2]string{"docs", "docs"}},
		"table": {
			side(), `; DROP TABLE docs_embedding, docs_embedding__next`,
			[2]string{"docs_embedding", "docs_embedding__next"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs)
			o := b.options(b.SlotName(), c.spec)
			live := b.init(o).Pipelines[0]
			d := embed.Description{Fingerprint: "other", Dims: 4}
			g, err := setup.NextGeneration(t.Context(), b.pool, &live, pipeline.ModelName{Model: "other"}, d, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := setup.ChangeModel(t.Context(), o, &g, d); err != nil {
				t.Fatal(err)
			}
			numbers := testenv.Values[int32](b.Database, `SELECT pipeline_id FROM embedsidecar.pipeline`)
			b.MustExec(`ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (id, title)` + c.sql)
			b.init(o)
			got := testenv.Values[string](b.Database, `SELECT concat_ws(' ', p.name, p.key_columns, s.phase, p.served,
				(SELECT q.name FROM embedsidecar.pipeline AS q WHERE q.pipeline_id = p.beside),
				p.pipeline_id <> ALL ($1), p.dims, d.quoted, d.type)
				FROM embedsidecar.pipeline AS p JOIN embedsidecar.scan AS s USING (pipeline_id)
				LEFT JOIN LATERAL embedsidecar.destination_of(p.pipeline_id) AS d ON true ORDER BY p.name`, numbers)
			want := []string{
				c.spec.Name + " {id,title} waiting t t 3 public." + c.into[0] + " public.vector(3)",
				c.spec.Name + "__next {id,title} waiting f " + c.spec.Name + " t 4 public." + c.into[1] + " public.vector(4)",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("generations (-want +got):\n%s", diff)
			}
			if got := whats(b.init(o)); len(got) > 0 {
				t.Errorf("a second set-up makes %q", got)
			}
			loaded, err := resolve.Load(t.Context(), b.pool, o.Slot)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range loaded {
				if p.Status != pipeline.Active {
					t.Errorf("%s: %s %s", p.Name, p.Status, p.Detail)
				}
			}
		})
	}
}
