package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestLoad_AnEmbeddingTableThatACrashEmpties: the loss would go unnoticed, because the file of an unlogged table stays
// the same.
func TestLoad_AnEmbeddingTableThatACrashEmpties(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.init(o)
	for _, step := range []struct {
		sql    string
		status pipeline.Status
	}{{`ALTER TABLE docs_embedding SET UNLOGGED`, pipeline.Misconfigured}, {
		`ALTER TABLE docs_embedding SET LOGGED`,
		pipeline.Active,
	}} {
		b.MustExec(step.sql)
		got, err := resolve.Load(t.Context(), b.pool, o.Slot)
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Status != step.status || (step.status != pipeline.Active) != strings.Contains(got[0].Detail,
			"ALTER TABLE public.docs_embedding SET LOGGED") {
			t.Errorf("after %s: %s %s", step.sql, got[0].Status, got[0].Detail)
		}
	}
}

// TestResolve_AColumnNeedsToKnowWhatTheTextReads: otherwise each vector could ask for the next.
func TestResolve_AColumnNeedsToKnowWhatTheTextReads(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, embedding vector(3))`)
	b.MustExecSuper(`REVOKE TEMPORARY ON DATABASE "` + b.Name + `" FROM public, "` + testenv.Owner + `"`)
	spec := docs()
	if _, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3}); err != nil {
		t.Errorf("columns are what they are: %v", err)
	}
	spec.Columns, spec.Text = nil, "title || body"
	_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
	wantError[*refusal.ConfigError](t, err, "TEMPORARY", fmt.Sprintf(`GRANT TEMPORARY ON DATABASE %q TO %q;`, b.Name,
		testenv.Owner))
}

// TestLoad_AFilterOnAPartition: a partition's own entry applies, whatever the entry of its partitioned table says.
func TestLoad_AFilterOnAPartition(t *testing.T) {
	t.Parallel()
	major := slices.Max(testenv.Majors(t))
	if major < 15 {
		return // no row filters
	}
	b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), `CREATE EXTENSION IF NOT EXISTS vector`,
		`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text) PARTITION BY RANGE (id)`,
		`CREATE TABLE part PARTITION OF docs DEFAULT`)
	o := b.options(b.SlotName(), side())
	b.init(o)
	load := func() pipeline.Pipeline {
		t.Helper()
		got, err := resolve.Load(t.Context(), b.pool, o.Slot)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	b.MustExec(`ALTER PUBLICATION "` + o.Publication + `" ADD TABLE part WHERE (id > 10)`)
	if p := load(); p.Status != pipeline.Unpublished {
		t.Errorf("%s %s, want it to be unpublished", p.Status, p.Detail)
	}
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "row filter on public.part", "DROP TABLE public.part")
	b.MustExec(`ALTER PUBLICATION "` + o.Publication + `" DROP TABLE part`)
	if p := load(); p.Status != pipeline.Active {
		t.Errorf("%s %s", p.Status, p.Detail)
	}
}

// TestInit_AdoptsAQueueOfAServerThatWasFurther: this server would not reach its transaction ids and positions for
// years.
func TestInit_AdoptsAQueueOfAServerThatWasFurther(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	b.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET system_id = '42'`)
	b.MustExec(`UPDATE embedsidecar.scan SET barrier = '99999999999'`)
	b.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT pipeline_id, '1', 0, '99999999999', 'FFF/0', 'FFF/1', now() FROM embedsidecar.pipeline`)
	o.Adopt = true
	b.init(o)
	for _, sql := range []string{
		`SELECT count(*) FROM embedsidecar.scan WHERE barrier > pg_current_xact_id()`,
		`SELECT count(*) FROM embedsidecar.task WHERE xid > pg_current_xact_id() OR first_lsn > pg_current_wal_insert_lsn() OR last_lsn > pg_current_wal_insert_lsn()`,
	} {
		if n := testenv.Value[int64](b.Database, sql); n != 0 {
			t.Errorf("%s: %d", sql, n)
		}
	}
}

// TestInit_ARoleThatActsAsAnother: a default of the role changes its sessions' role to one without REPLICATION.
func TestInit_ARoleThatActsAsAnother(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	team := b.Role("NOREPLICATION")
	login := b.Role("REPLICATION IN ROLE " + team)
	for _, sql := range []string{
		`ALTER ROLE ` + login + ` SET role = ` + team, `ALTER TABLE docs OWNER TO ` + team,
		`GRANT CREATE ON DATABASE "` + b.Name + `" TO ` + team, `GRANT CREATE ON SCHEMA public TO ` + team,
	} {
		b.MustExecSuper(sql)
	}
	o := b.options(b.SlotName(), docs())
	o.Pool, o.ReplicationDSN = b.connect(login), b.URL(login)
	b.init(o)
	b.MustExecSuper(`DROP PUBLICATION embedsidecar`)
	if got := whats(b.init(o)); !slices.ContainsFunc(got, func(what string) bool {
		return strings.Contains(what,
			"again (")
	}) {
		t.Errorf("made %v, want the slot anew", got)
	}
}
