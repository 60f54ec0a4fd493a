package setup_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP4_ATableWhoseUpdatesWouldFailIsRefused: PostgreSQL 18 refuses UPDATEs of a published table whose replica
// identity has columns that are not sent. A table that init accepts can be updated once it is published.
func TestP4_ATableWhoseUpdatesWouldFailIsRefused(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		kinds := []string{"STORED"}
		if major >= 18 {
			kinds = append(kinds, "VIRTUAL")
		}
		for _, kind := range kinds {
			b := baseOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()),
				"CREATE TABLE docs (id int PRIMARY KEY, body text, embedding vector(3), loud text GENERATED ALWAYS AS (upper(body)) "+kind+")",
				"CREATE TABLE parts (LIKE docs INCLUDING ALL) PARTITION BY RANGE (id)",
				"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
				"CREATE TABLE plain (id int PRIMARY KEY, body text, embedding vector(3))",
				"CREATE TABLE tags (doc_id int, LIKE docs INCLUDING ALL)",
				"INSERT INTO docs VALUES (1, 'a')", "INSERT INTO parts VALUES (1, 'a')", "INSERT INTO tags VALUES (1, 1, 'a')",
			)
			resolved := func(table string, joins ...pipeline.Join) error {
				_, _, err := resolve.Resolve(t.Context(), b.pool, pipeline.Spec{
					Name: table, Schema: "public", Table: table, Columns: []string{"body"}, IntoColumn: "embedding", Joins: joins,
				}, catalog.Vectors{Dims: 3})
				return err
			}
			join := pipeline.Join{
				Schema: "public", Table: "tags", As: "tags", On: []pipeline.On{{Column: "doc_id", Of: "id"}},
				Text: "string_agg(body, ' ')",
			}
			err := resolved("plain", join)
			wantError[*refusal.ConfigError](t, err, "doc_id", "USING INDEX")
			if strings.Contains(strings.Join(caught[*refusal.ConfigError](t, err).Hints(), " "), "FULL") {
				t.Errorf("%s: what is hinted at would be refused: %v", kind, err)
			}
			if err := resolved("docs"); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			for _, full := range []string{"docs", "parts_1", "tags"} {
				b.MustExec("ALTER TABLE " + full + " REPLICA IDENTITY FULL")
			}
			b.MustExec("CREATE PUBLICATION changes FOR TABLE docs, parts, tags")
			for table, err := range map[string]error{
				"docs": resolved("docs"), "parts": resolved("parts"), "tags": resolved("plain", join),
			} {
				_, failed := b.Pool.Exec(t.Context(), "UPDATE "+table+" SET body = 'b'")
				if failed == nil && err != nil || failed != nil != (major >= 18) {
					t.Errorf("%s %s: its UPDATE: %v; its set-up: %v", table, kind, failed, err)
				}
				if failed != nil {
					wantError[*refusal.ConfigError](t, err, "generated column", "REPLICA IDENTITY DEFAULT")
				}
			}
		}
	})
}
