package setup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestBuildIndex_FitsItsDestination(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()),
			"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)",
			"CREATE TABLE parts (region text, id bigint, title text, body text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
			"CREATE TABLE parts_north PARTITION OF parts FOR VALUES IN ('north')",
			"CREATE TABLE parts_rest PARTITION OF parts DEFAULT")
		specs := []pipeline.Spec{}
		for i, stored := range []pipeline.Stored{pipeline.StoredVector, pipeline.StoredHalfvec, pipeline.StoredBit} {
			column, table := docs(), docs()
			column.Name, column.IntoColumn, column.IntoType = fmt.Sprint("column ", i), fmt.Sprint("Vector ", i), stored
			table.Name, table.IntoColumn, table.IntoTable, table.IntoType = fmt.Sprint("table ", i), "", fmt.Sprint("docs_", i),
				stored
			specs = append(specs, column, table)
		}
		parts := docs()
		parts.Name, parts.Table = "parts", "parts"
		specs = append(specs, parts)
		made := b.init(b.options(b.SlotName(), specs...))
		build := func(p *pipeline.Pipeline, want indexes.State) []string {
			t.Helper()
			state, statements, err := indexes.Build(t.Context(), b.pool, p)
			if err != nil || state != want {
				t.Fatalf("%s: %s, %v, want %s", p.Name, state, err, want)
			}
			return statements
		}
		first := &made.Pipelines[0]
		build(first, indexes.Waits) // for the scan
		b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")

		role := b.connect(b.RunRole(made.Pipelines...))
		state, statements, err := indexes.Build(t.Context(), role, first)
		if err != nil || state != indexes.Refused || len(statements) != 1 || !strings.Contains(statements[0],
			"CREATE INDEX CONCURRENTLY") {
			t.Errorf("as a role that does not own the table: %s, %q, %v", state, statements, err)
		}
		for i := range made.Pipelines {
			p := &made.Pipelines[i]
			build(p, indexes.Built)
			build(p, indexes.There)
		}
		valid := testenv.Values[string](b.Database,
			`SELECT c.relname || ': ' || o.opcname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
				JOIN pg_class c ON c.oid = i.indrelid
			JOIN pg_am m ON m.oid = x.relam JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE m.amname = 'hnsw' AND i.indisvalid
			ORDER BY 1`)
		want := "docs: bit_hamming_ops, docs: halfvec_cosine_ops, docs: vector_cosine_ops, docs_0: vector_cosine_ops, docs_1: halfvec_cosine_ops, docs_2: bit_hamming_ops, " +
			"parts_north: vector_cosine_ops, parts_rest: vector_cosine_ops"
		if got := strings.Join(valid, ", "); got != want {
			t.Errorf("indexes %s\nwant    %s", got, want)
		}

		// An interrupted build leaves an invalid index: the build is repeated.
		b.MustExecSuper(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = '"docs_Vector 0_hnsw"'::regclass`)
		build(first, indexes.Built)
		build(first, indexes.There)
	})
}

// TestBuildIndex_LeavesOneThatIsBeingBuilt: the server goes on with the build of a sidecar that was killed. The next
// sidecar dropped that index as one of an interrupted build, or one of the two failed by a deadlock.
func TestBuildIndex_LeavesOneThatIsBeingBuilt(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
	made := b.init(b.options(b.SlotName(), docs()))
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
	p := &made.Pipelines[0]
	list, err := indexes.Of(t.Context(), b.pool, p)
	if err != nil || len(list) != 1 || len(list[0].SQL) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	writer, err := b.super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err = writer.Exec(t.Context(), "INSERT INTO public.docs VALUES (1)"); err != nil { // the build waits for it
		t.Fatal(err)
	}
	conn, err := b.pool.Acquire(t.Context())
	if err == nil {
		_, err = conn.Exec(t.Context(), "SET lock_timeout = 0")
	}
	if err != nil {
		t.Fatal(err)
	}
	built := make(chan error, 1)
	go func() {
		defer conn.Release()
		_, err := conn.Exec(t.Context(), list[0].SQL[0])
		built <- err
	}()
	testenv.Eventually(t, waitFor, func() (bool, string) {
		return testenv.Value[bool](b.Database, `SELECT EXISTS (SELECT FROM pg_stat_progress_create_index
			WHERE datname = current_database() AND index_relid <> 0)`), "no build is under way"
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if state, _, err := indexes.Build(ctx, b.pool, p); err != nil || state != indexes.Waits {
		t.Errorf("while the server builds it: %s, %v", state, err)
	}
	if err := writer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-built; err != nil {
		t.Errorf("the build failed: %v", err)
	}
	if state, _, err := indexes.Build(t.Context(), b.pool, p); err != nil || state != indexes.There {
		t.Errorf("then: %s, %v", state, err)
	}
}

// TestBuildIndex_OfTablesWhoseNamesBeginAlike: the name of an index has room for the beginning of the table's name
// only. Partitions, and the next generation of an embedding table, need others.
func TestBuildIndex_OfTablesWhoseNamesBeginAlike(t *testing.T) {
	t.Parallel()
	b := baseOn(t, testenv.DB(t, testenv.Empty()),
		"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)",
		"CREATE TABLE parts (region text, id bigint, title text, body text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
		"CREATE TABLE messages_to_the_customer_support_north PARTITION OF parts FOR VALUES IN ('north')",
		"CREATE TABLE messages_to_the_customer_support_south PARTITION OF parts FOR VALUES IN ('south')",
		"CREATE TABLE messages_to_the_customer_support_rest PARTITION OF parts DEFAULT")
	one, next, parts := docs(), docs(), docs()
	one.Name, one.IntoColumn, one.IntoTable = "one", "", "messages_to_the_customer_support_embedding"
	next.Name, next.IntoColumn, next.IntoTable = "next", "", one.IntoTable+"_next"
	parts.Name, parts.Table = "parts", "parts"
	made := b.init(b.options(b.SlotName(), one, next, parts))
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
	build := func() {
		t.Helper()
		for i := range made.Pipelines {
			for _, want := range []indexes.State{indexes.Built, indexes.There} {
				if state, _, err := indexes.Build(t.Context(), b.pool, &made.Pipelines[i]); err != nil || state != want {
					t.Fatalf("%s: %s, error %v, want %s", made.Pipelines[i].Name, state, err, want)
				}
			}
		}
		const want = "messages_to_the_customer_su_embedding_hnsw, messages_to_the_customer_su_embedding_hnsw_2, " +
			"messages_to_the_customer_su_embedding_hnsw_3, messages_to_the_customer_su_embedding_hnsw_4, " +
			"messages_to_the_customer_su_embedding_hnsw_5"
		got := strings.Join(testenv.Values[string](b.Database, `SELECT c.relname::text FROM pg_index i JOIN pg_class c
			ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam WHERE m.amname = 'hnsw' AND i.indisvalid ORDER BY 1`), ", ")
		if got != want {
			t.Errorf("indexes %s\nwant    %s", got, want)
		}
	}
	build()
	b.MustExecSuper(`UPDATE pg_index SET indisvalid = false WHERE indexrelid IN (
		SELECT oid FROM pg_class WHERE relname LIKE 'messages\_to%hnsw%')`) // as interrupted builds leave them
	build()
}

// TestBuildIndex_CutsNamesAsTheServerDoes: letters of several bytes. An interrupted build is found by its name.
func TestBuildIndex_CutsNamesAsTheServerDoes(t *testing.T) {
	t.Parallel()
	b := baseOn(t, testenv.DB(t, testenv.Empty()), "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
	spec := docs()
	spec.IntoColumn, spec.IntoTable = "", "звернення_до_служби_підтримки"
	p := &b.init(b.options(b.SlotName(), spec)).Pipelines[0]
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done'")
	for range 2 {
		for _, want := range []indexes.State{indexes.Built, indexes.There} {
			if state, _, err := indexes.Build(t.Context(), b.pool, p); err != nil || state != want {
				t.Fatalf("%s, error %v, want %s", state, err, want)
			}
		}
		if n := testenv.Value[int](b.Database, `SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			JOIN pg_am m ON m.oid = c.relam WHERE m.amname = 'hnsw'`); n != 1 {
			t.Errorf("%d indexes", n)
		}
		b.MustExecSuper(`UPDATE pg_index SET indisvalid = false WHERE indexrelid IN (SELECT c.oid FROM pg_class c
			JOIN pg_am m ON m.oid = c.relam WHERE m.amname = 'hnsw')`) // as an interrupted build leaves it
	}
}

// TestIndexes_SuggestANameForEachPartition: their names begin alike, and each statement can be run.
func TestIndexes_SuggestANameForEachPartition(t *testing.T) {
	t.Parallel()
	b := baseOn(t, testenv.DB(t, testenv.Empty()),
		"CREATE TABLE parts (region text, id bigint, title text, body text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
		"CREATE TABLE messages_to_the_customer_support_north PARTITION OF parts FOR VALUES IN ('north')",
		"CREATE TABLE messages_to_the_customer_support_south PARTITION OF parts FOR VALUES IN ('south')",
		"CREATE TABLE messages_to_the_customer_support_rest PARTITION OF parts DEFAULT")
	parts := docs()
	parts.Table = "parts"
	p := &b.init(b.options(b.SlotName(), parts)).Pipelines[0]
	stranger := b.connect(b.RunRole(*p))
	_, statements, err := indexes.Build(t.Context(), stranger, p)
	slices.Sort(statements)
	if err != nil || len(slices.Compact(statements)) != 3 {
		t.Errorf("for the owner: %q, %v", statements, err)
	}
	b.are(p, true, "none", "none", "none")
	b.are(p, false, "ready messages_to_the_customer_su_embedding_hnsw",
		"ready messages_to_the_customer_su_embedding_hnsw_2", "ready messages_to_the_customer_su_embedding_hnsw_3")
}
