package setup_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestInit_IndexesOfOtherExtensions: a kind whose extension is missing is refused with a hint, and nothing is made. The
// statement is that of the extension's manual.
func TestInit_IndexesOfOtherExtensions(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()),
			"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
		for kind, extension := range map[string]string{"diskann": "vectorscale", "vchordrq": "vchord"} {
			spec := docs()
			spec.Index = kind
			_, err := setup.Init(t.Context(), b.options(b.SlotName(), spec))
			if err == nil {
				t.Fatalf("%s is not refused", kind)
			}
			said := err.Error() + strings.Join(problem.Hints(err), "\n")
			for _, want := range []string{
				"index: " + kind, extension, "which this server does not have", "CREATE EXTENSION " + extension,
			} {
				if !strings.Contains(said, want) {
					t.Errorf("%s: %q is missing in %s", kind, want, said)
				}
			}
		}
		if testenv.Value[bool](b.Database, "SELECT to_regclass('embedsidecar.pipeline') IS NOT NULL AND EXISTS (SELECT FROM pg_publication)") {
			t.Error("something was made")
		}
		p := b.init(b.options(b.SlotName(), docs())).Pipelines[0]
		p.Index, p.IndexBuild.Options = pipeline.IndexDiskANN, "num_neighbors = 40"
		list, err := indexes.Of(t.Context(), b.pool, &p)
		if err != nil || len(list) != 1 || len(list[0].SQL) != 1 {
			t.Fatal(list, err)
		}
		const want = `CREATE INDEX CONCURRENTLY "docs_embedding_diskann" ON "public"."docs" USING diskann ("embedding" ` +
			`"public".vector_cosine_ops) WITH (num_neighbors = 40);`
		if got := list[0].SQL[0]; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
