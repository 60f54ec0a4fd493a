package queue_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// walked collects the tables that a plan reads from end to end, by themselves or by an index of which it knows no
// first column. first are the first columns of indexes.
func walked(plan map[string]any, table string, first map[string]string, into map[string]bool) {
	word := func(key string) string { s, _ := plan[key].(string); return s }
	if name := word("Relation Name"); name != "" {
		table = name
	}
	index := word("Index Name")
	known := regexp.MustCompile(`\b` + first[index] + `\b`)
	if word("Node Type") == "Seq Scan" || index != "" && !known.MatchString(word("Index Cond")) {
		into[table] = true
	}
	children, _ := plan["Plans"].([]any)
	for _, child := range children {
		walked(child.(map[string]any), table, first, into) //nolint:forcetypeassert // EXPLAIN's shape
	}
}

// Every statement finds tasks and what the ledger knows by an index that is there under the name which the statement's
// comment gives it, or says that none fits: planned while the tables are empty, and once for all, as those are that are
// about few rows.
func TestQuery_IndexesAreThereAndFit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Rollback(context.WithoutCancel(t.Context())) }()
	batch := &pgx.Batch{}
	database.PlanOnce(nil, batch, 1)
	if err := conn.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	first := map[string]string{}
	for _, s := range testenv.Values[string](f.db,
		`SELECT c.relname || ' ' || pg_get_indexdef(c.oid, 1, false) FROM pg_index AS i
			JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE c.relnamespace = 'embedsidecar'::regnamespace`) {
		index, column, _ := strings.Cut(s, " ")
		first[index] = column
	}
	named := regexp.MustCompile(`\b\w+_idx\b`)
	files, err := os.ReadDir("../sql/queries")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".sql")
		query := sqlfiles.Query(name)
		for _, index := range named.FindAllString(query, -1) {
			if first[index] == "" {
				t.Errorf("%s names %s, which is not there", name, index)
			}
		}
		sql, args, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), query, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		exec("PREPARE planned AS " + sql)
		explain := "EXPLAIN (FORMAT JSON) EXECUTE planned"
		if len(args) > 0 {
			explain += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", len(args)), ", ") + ")"
		}
		var plan []struct{ Plan map[string]any }
		if err := conn.QueryRow(t.Context(), explain, pgx.QueryExecModeSimpleProtocol).Scan(&plan); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		exec("DEALLOCATE planned")
		tables := map[string]bool{}
		walked(plan[0].Plan, "", first, tables)
		for _, table := range []string{"task", "ledger"} {
			hops := name == "find_leftovers" // it takes the first entry each time
			if tables[table] && !hops && !strings.Contains(query, "Index: none") {
				t.Errorf("%s reads all of %s", name, table)
			}
		}
	}
}
