//go:build linux

package e2e

import (
	"strings"
	"testing"

	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// referenceText is a text with its token ids and the vector that sentence-transformers gives it.
type referenceText struct {
	Text      string    `json:"text"`
	IDs       []int     `json:"ids"`
	Embedding []float32 `json:"embedding"`
}

// TestReference_VectorsInPostgres runs the default model over the reference's texts, from the rows' commit to the
// vectors in a column and in an embedding table, and compares these with those of sentence-transformers.
func TestReference_VectorsInPostgres(t *testing.T) {
	t.Parallel()
	lines := onnxtest.Lines[referenceText](t, "../../plugins/onnx/model/testdata/embeddings.jsonl.gz")
	testenv.InTurn(t, 1, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		r := &rig{t: t, db: db, slot: db.SlotName(), dir: t.TempDir(), url: db.URL(testenv.Owner) + "&connect_timeout=300"}
		db.MustExec(`CREATE TABLE texts (n int PRIMARY KEY, body text)`)
		for n, line := range lines {
			if !strings.Contains(line.Text, "\x00") { // no Postgres text holds it
				db.MustExec(`INSERT INTO texts VALUES ($1, $2)`, n, line.Text)
			}
		}
		c := r.start(onnx(t), "run", "--once", "--pipeline", "public.texts: body -> embedding", "--pipeline",
			"public.texts: body -> table texts_embedding")
		if s := c.wait(waitTimeout); s.ExitStatus() != 0 {
			t.Fatalf("run --once ended with %v:\n%s", c.cmd.ProcessState, c.tail())
		}
		for into, query := range map[string]string{
			"column": `SELECT n, embedding::text FROM texts`,
			"table":  `SELECT r.n, d.embedding::text FROM texts AS r LEFT JOIN texts_embedding AS d USING (n)`,
		} {
			worst, compared := 1.0, 0
			for _, row := range testenv.Rows[struct {
				N      int
				Vector *string
			}](db, query) {
				line := lines[row.N]
				if tokens := len(line.IDs) - 2; tokens <= 0 { // no token but the two that every text has
					if row.Vector != nil {
						t.Errorf("%s: text %d has no token, but a vector", into, row.N)
					}
					continue
				}
				if row.Vector == nil {
					t.Errorf("%s: text %d has no vector", into, row.N)
					continue
				}
				var vector pgvector.Vector
				if err := vector.Parse(*row.Vector); err != nil {
					t.Fatal(err)
				}
				worst = min(worst, embed.Cosine(vector.Slice(), line.Embedding))
				compared++
			}
			t.Logf("%s: %d vectors, the lowest cosine is %.9f", into, compared, worst)
			if worst < 0.9999 || compared < 90 {
				t.Errorf("%s: %d of %d vectors compared, the lowest cosine is %.6f: want at least 90, and 0.9999", into, compared,
					len(lines), worst)
			}
		}
	})
}
