package pipeline

import "testing"

// Two pipelines lead to the same place exactly if what they would overwrite is the same.
func TestDestination_IsTheSameHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	column := Spec{Schema: "public", Table: "docs", IntoColumn: "embedding"}
	table := Spec{Schema: "public", Table: "docs", IntoTable: "docs_embedding"}
	spelled := table
	spelled.IntoSchema = "public"
	elsewhere := table
	elsewhere.IntoSchema = "vectors"
	if table.Destination() != spelled.Destination() || table.DestinationName() != spelled.DestinationName() {
		t.Errorf("the schema of the source table is not that of %s, for which none is written", table.DestinationName())
	}
	if table.Destination() == elsewhere.Destination() || table.Destination() == column.Destination() {
		t.Error("other destinations count as the same")
	}
	for _, c := range []struct {
		spec                Spec
		name, table, column string
	}{
		{column, `"public"."docs"."embedding"`, `"public"."docs"`, "embedding"},
		{table, `"public"."docs_embedding"`, `"public"."docs_embedding"`, "embedding"},
		{elsewhere, `"vectors"."docs_embedding"`, `"vectors"."docs_embedding"`, "embedding"},
	} {
		if name, in, of := c.spec.DestinationName(), c.spec.VectorTable(), c.spec.VectorColumn(); name != c.name ||
			in != c.table || of != c.column {
			t.Errorf("%+v: %s, vectors in %s of %s, want %s, %s, %s", c.spec.Destination(), name, of, in, c.name, c.column,
				c.table)
		}
	}
}
