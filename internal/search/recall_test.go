package search_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// With an HNSW index and a selective filter, a search finds the same rows as without an index.
func TestFind_FewRowsFitTheFilterOfAnIndexedSearch(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		const rows, wanted = 400, 5
		r := newRig(t, major, rows)
		r.db.MustExec("UPDATE docs SET tenant = 100 WHERE id % 40 = 0") // ten rows
		r.db.MustExec("UPDATE docs SET tenant = 101 WHERE id = 7")
		ask := func(name string, tenant, question int) []string {
			t.Helper()
			return keys(r.find(r.pipelines[name], search.Request{
				Vector: vector.Of(fmt.Sprint("question ", question), dims), Rows: wanted,
				Filter: search.Filters{"tenant": {{Values: []string{fmt.Sprint(tenant)}}}},
			}))
		}
		names, tenants := []string{"table", "column"}, map[int]int{100: wanted, 101: 1, 999: 0}
		exact := map[string][]string{}
		each := func(do func(where, name string, tenant, question int)) {
			t.Helper()
			for _, name := range names {
				for tenant := range tenants {
					for question := range 5 {
						do(fmt.Sprintf("%s, tenant %d, question %d", name, tenant, question), name, tenant, question)
					}
				}
			}
		}
		each(func(where, name string, tenant, question int) {
			t.Helper()
			exact[where] = ask(name, tenant, question)
			if len(exact[where]) != tenants[tenant] {
				t.Fatalf("%s without an index: %v", where, exact[where])
			}
		})
		r.db.MustExec("CREATE INDEX CONCURRENTLY ON docs_embedding USING hnsw (embedding vector_cosine_ops)")
		r.db.MustExec("CREATE INDEX CONCURRENTLY ON docs USING hnsw (embedding vector_cosine_ops)")
		// The settings force the index, which gives up after one vector that does not match.
		for _, setting := range []string{"enable_seqscan = off", "enable_sort = off", "hnsw.max_scan_tuples = 1"} {
			r.db.MustExecSuper(fmt.Sprintf(`ALTER DATABASE "%s" SET %s`, r.db.Name, setting))
		}
		r.pool.Reset()
		for _, name := range names {
			e, err := search.Explain(t.Context(), r.pool, r.pipelines[name], search.Request{
				Vector: vector.Of("question", dims),
				Rows:   wanted,
			})
			if err != nil || !strings.Contains(strings.Join(e.Plan, "\n"), "embedding_idx") {
				t.Fatalf("%s: the index is not used (%v):\n%s", name, err, strings.Join(e.Plan, "\n"))
			}
			if plan := strings.Join(e.Plan, "\n"); !strings.Contains(plan, "'...'") ||
				regexp.MustCompile(`[-0-9.,]{100}`).MatchString(plan) {
				t.Errorf("the plan holds the numbers of the vector:\n%s", plan)
			}
		}
		each(func(where, name string, tenant, question int) {
			t.Helper()
			if got := ask(name, tenant, question); len(got) != len(exact[where]) {
				t.Errorf("%s: %v, exactly %v", where, got, exact[where])
			}
		})
		// So few of the index's results match that another path must have answered.
		question := vector.Of("question 0", dims)
		r.db.MustExec("DELETE FROM docs WHERE id <> ALL ($1)", []int{40, 80, 120})
		for _, name := range names {
			got := keys(r.find(r.pipelines[name], search.Request{Vector: question, Rows: wanted}))
			slices.Sort(got)
			if !slices.Equal(got, []string{"120", "40", "80"}) {
				t.Errorf("%s: %v are found where most rows near are gone", name, got)
			}
		}
	})
}
