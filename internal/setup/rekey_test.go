package setup_test

import (
	"context"
	"fmt"
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

// A pipeline whose table got another key starts over immediately, whatever its ledger holds and whoever holds its
// tasks. The old keys are deleted in portions afterwards, and no other change waits for that.
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

// next makes the next generation of a pipeline, with a model of four dimensions.
func (b *base) next(o setup.Options, live *pipeline.Pipeline) {
	b.t.Helper()
	d := embed.Description{Fingerprint: "other", Dims: 4}
	g, err := setup.NextGeneration(b.t.Context(), b.pool, live, pipeline.ModelName{Model: "other"}, d, nil)
	if err == nil {
		_, err = setup.ChangeModel(b.t.Context(), o, &g, d)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// destinations lists where each generation's vectors are, as a switch, a rollback and model_drop_old see it.
const destinations = `SELECT p.name || ' ' || coalesce(d.quoted || ' ' || d.column_name || ' '
		|| regexp_replace(d.type, '^.*[.]', ''), 'gone')
	FROM embedsidecar.pipeline AS p LEFT JOIN LATERAL embedsidecar.destination_of(p.pipeline_id) AS d ON true
	ORDER BY p.name`

// TestP1_AGenerationKeepsItsDestination: an embedding table that was recreated or restored under its name stays that of
// its generation, and another table with its old OID does not become it.
func TestP1_AGenerationKeepsItsDestination(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec pipeline.Spec
		sql  string
		want [2]string // of the live generation, and of the next
	}{
		"as made": {side(), ``, [2]string{"public.docs_embedding", "public.docs_embedding__next"}},
		"renamed": {
			side(), `ALTER TABLE docs_embedding RENAME TO moved`,
			[2]string{"public.moved", "public.docs_embedding__next"},
		},
		"made again": {side(), `CREATE TABLE made (LIKE docs_embedding INCLUDING ALL); DROP TABLE docs_embedding;
			ALTER TABLE made RENAME TO docs_embedding`, [2]string{"public.docs_embedding", "public.docs_embedding__next"}},
		"made again beside the old one": {
			side(), `ALTER TABLE docs_embedding__next RENAME TO old;
			CREATE TABLE docs_embedding__next (LIKE old INCLUDING ALL)`,
			[2]string{"public.docs_embedding", "public.docs_embedding__next"},
		},
		"restored": {
			side(), `CREATE TABLE stranger (LIKE docs_embedding INCLUDING ALL);
			UPDATE embedsidecar.pipeline SET table_oid = 1, destination_oid = 'stranger'::regclass`,
			[2]string{"public.docs_embedding", "public.docs_embedding__next"},
		},
		"in the middle of a switch": {
			side(), `ALTER TABLE docs_embedding RENAME TO docs_embedding__previous;
			ALTER TABLE docs_embedding__next RENAME TO docs_embedding`,
			[2]string{"public.docs_embedding__previous", "public.docs_embedding"},
		},
		"in a schema with another name": {
			side(), `ALTER SCHEMA public RENAME TO moved; CREATE SCHEMA public;
			CREATE TABLE public.docs_embedding (LIKE moved.docs_embedding INCLUDING ALL)`,
			[2]string{"moved.docs_embedding", "moved.docs_embedding__next"},
		},
		"column": {docs(), ``, [2]string{"public.docs embedding", "public.docs embedding__next"}},
		"column of a table with another name": {
			docs(), `ALTER TABLE docs RENAME TO moved; CREATE TABLE docs (LIKE moved)`,
			[2]string{"public.moved embedding", "public.moved embedding__next"},
		},
		"column, in the middle of a switch": {
			docs(), `ALTER TABLE docs RENAME embedding TO embedding__previous;
			ALTER TABLE docs RENAME embedding__next TO embedding`,
			[2]string{"public.docs embedding__previous", "public.docs embedding"},
		},
		"column, restored": {docs(), `CREATE TABLE stranger (a int, b int, c int, d int, e vector(3), f vector(4));
			UPDATE embedsidecar.pipeline SET table_oid = 'stranger'::regclass`, [2]string{"gone", "gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs)
			o := b.options(b.SlotName(), c.spec)
			b.next(o, &b.init(o).Pipelines[0])
			b.MustExecSuper(`SET search_path = public; ` + c.sql)
			got := testenv.Values[string](b.Database, destinations)
			var want []string
			for i, suffix := range []string{"", "__next"} {
				where := c.want[i]
				if where != "gone" {
					if !c.spec.InSource() {
						where += " embedding"
					}
					where += fmt.Sprintf(" vector(%d)", 3+i)
				}
				want = append(want, c.spec.Name+suffix+" "+where)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("destinations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestP5_AnotherKeyBesideANextGeneration: both generations of a pipeline get new numbers and keys, and the next one
// continues beside the live one.
func TestP5_AnotherKeyBesideANextGeneration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec pipeline.Spec
		sql  string // changes the key; an embedding table keeps the old one
		into [2]string
	}{
		"column": {docs(), ``, [2]string{"docs embedding", "docs embedding__next"}},
		"table": {
			side(), `; DROP TABLE docs_embedding, docs_embedding__next`,
			[2]string{"docs_embedding embedding", "docs_embedding__next embedding"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs)
			o := b.options(b.SlotName(), c.spec)
			b.next(o, &b.init(o).Pipelines[0])
			numbers := testenv.Values[int32](b.Database, `SELECT pipeline_id FROM embedsidecar.pipeline`)
			b.MustExec(`ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (id, title)` + c.sql)
			b.init(o)
			got := testenv.Values[string](b.Database, `SELECT concat_ws(' ', p.name, p.key_columns, s.phase, p.served,
				(SELECT q.name FROM embedsidecar.pipeline AS q WHERE q.pipeline_id = p.beside),
				p.pipeline_id <> ALL ($1), p.dims)
				FROM embedsidecar.pipeline AS p JOIN embedsidecar.scan AS s USING (pipeline_id) ORDER BY p.name`, numbers)
			got = append(got, testenv.Values[string](b.Database, destinations)...)
			want := []string{
				c.spec.Name + " {id,title} waiting t t 3", c.spec.Name + "__next {id,title} waiting f " + c.spec.Name + " t 4",
				c.spec.Name + " public." + c.into[0] + " vector(3)",
				c.spec.Name + "__next public." + c.into[1] + " vector(4)",
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

// TestTrust_ASwitchIsAskedAboutPublicationsOfPartitions: a column list with the present vectors would continue to send
// the old ones. The same holds for that of a partition, whose columns have other numbers.
func TestTrust_ASwitchIsAskedAboutPublicationsOfPartitions(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text) PARTITION BY RANGE (id);
		CREATE TABLE leaf (gone int, body text, title text, id bigint NOT NULL, PRIMARY KEY (id)); ALTER TABLE leaf DROP gone;
		ALTER TABLE docs ATTACH PARTITION leaf FOR VALUES FROM (0) TO (9)`)
	if !b.columnLists() {
		t.Log("this server has no lists of columns")
		return
	}
	o := b.options(b.SlotName(), docs())
	b.next(o, &b.init(o).Pipelines[0])
	b.MustExec(`CREATE PUBLICATION served FOR TABLE leaf (id, embedding); CREATE PUBLICATION entire FOR TABLE leaf;
		CREATE PUBLICATION pair FOR TABLE leaf (id, embedding, embedding__next);
		CREATE PUBLICATION plain FOR TABLE leaf (id, title);
		CREATE PUBLICATION parent FOR TABLE docs (id, embedding) WITH (publish_via_partition_root)`)
	got := testenv.Values[string](b.Database, `SELECT t.what || t.sql FROM embedsidecar.pipeline AS p
		CROSS JOIN LATERAL embedsidecar.generation_ties(p.beside, p.pipeline_id) AS t
		WHERE p.beside IS NOT NULL ORDER BY 1`)
	const way = ` -- have the columns of public.%s in publication %s name embedding__next, too`
	want := []string{
		"publication parent" + fmt.Sprintf(way, "docs", "parent"),
		"publication served" + fmt.Sprintf(way, "leaf", "served"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ties (-want +got):\n%s", diff)
	}
}

// TestP4_ASwitchThatWaitsKeepsNoTable: while a session keeps a switch from the vectors, the other tables of their views
// can be altered.
func TestP4_ASwitchThatWaitsKeepsNoTable(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.next(o, &b.init(o).Pipelines[0])
	b.MustExec(`CREATE VIEW shown AS SELECT d.title, v.text_hash FROM docs AS d JOIN docs_embedding AS v USING (id);
		UPDATE embedsidecar.scan SET finished_at = now(), gap = false`)
	reader, _ := b.Open()
	if _, err := reader.Exec(t.Context(), `SELECT FROM docs_embedding`); err != nil {
		t.Fatal(err)
	}
	switched := make(chan string, 1)
	go func() {
		var result string
		err := b.pool.QueryRow(t.Context(), `SELECT embedsidecar.model_switch('side', force => true, patience => '5 min')`).
			Scan(&result)
		switched <- fmt.Sprint(result, err)
	}()
	testenv.Eventually(t, waitFor, func() (bool, string) {
		return testenv.Value[bool](b.Database, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%model_switch(%' AND wait_event = 'PgSleep')`), "no switch waits"
	})
	b.MustExec(`BEGIN; SET LOCAL lock_timeout = '20s'; ALTER TABLE docs ADD COLUMN more int; COMMIT`)
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-switched; got != "switched<nil>" {
		t.Errorf("the switch ended with %s", got)
	}
}

// TestSwitch_ThePipelineStaysThatOfItsFile: who takes it out of the file removes it.
func TestSwitch_ThePipelineStaysThatOfItsFile(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.next(o, &b.init(o).Pipelines[0])
	b.MustExec(`UPDATE embedsidecar.pipeline SET origin = 'a file' WHERE beside IS NULL`)
	b.MustExec(`UPDATE embedsidecar.scan SET finished_at = now(), gap = false`)
	b.MustExec(`SELECT embedsidecar.model_switch('side', force => true)`)
	const origin = `SELECT origin FROM embedsidecar.pipeline WHERE name = 'side'`
	if got := testenv.Value[string](b.Database, origin); got != "a file" {
		t.Errorf("it comes from %q now", got)
	}
}
