package queue_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_APublicationKeepsItsFilter: a column that is taken out of a publication's list takes no row filter along,
// which keeps rows from subscribers. Partitions have lists of their own, and numbers. A list of it alone goes with it.
func TestTrust_APublicationKeepsItsFilter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if !testenv.Value[bool](f.db, `SELECT current_setting('server_version_num')::integer >= 150000`) {
		t.Log("this server has no lists of columns")
		return
	}
	f.db.MustExec(`CREATE TABLE seen (id bigint PRIMARY KEY, open boolean, old integer, "Odd" text)`)
	f.db.MustExec(`CREATE PUBLICATION few FOR TABLE ONLY seen (id, old, "Odd") WHERE (id > 7 AND id < 9)`)
	f.db.MustExec(`CREATE PUBLICATION more FOR TABLE ONLY seen (id, old)`)
	f.db.MustExec(`CREATE PUBLICATION alone FOR TABLE ONLY seen (old) WITH (publish = 'insert')`)
	f.db.MustExec(`CREATE TABLE parts (id bigint PRIMARY KEY, old integer) PARTITION BY RANGE (id);
		CREATE TABLE half PARTITION OF parts FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id);
		CREATE TABLE leaf (was integer, old integer, id bigint NOT NULL); ALTER TABLE leaf DROP was;
		ALTER TABLE half ATTACH PARTITION leaf FOR VALUES FROM (0) TO (9);
		CREATE PUBLICATION part FOR TABLE leaf (id, old) WHERE (id > 3)`)
	for table, attnum := range map[string]int{"seen": 3, "parts": 2} {
		f.db.MustExec(`SELECT embedsidecar.unpublish_column($1::regclass, $2::smallint)`, table, attnum)
		f.db.MustExec(`ALTER TABLE ` + table + ` DROP COLUMN old`)
	}
	got := strings.Join(testenv.Values[string](f.db, `SELECT concat_ws(' ', pubname, attnames::text, rowfilter)
		FROM pg_publication_tables WHERE tablename IN ('seen', 'leaf') ORDER BY pubname`), "; ")
	if want := `few {id,Odd} ((id > 7) AND (id < 9)); more {id}; part {id} (id > 3)`; got != want {
		t.Errorf("published: %s, want %s", got, want)
	}
}
