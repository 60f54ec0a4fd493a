package queue_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_APublicationKeepsItsFilter: a column that is taken out of a publication's list takes no row filter along,
// which keeps rows from subscribers.
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
	f.db.MustExec(`SELECT embedsidecar.unpublish_column('seen'::regclass, 3::smallint)`)
	got := strings.Join(testenv.Values[string](f.db, `SELECT concat_ws(' ', pubname, attnames::text, rowfilter)
		FROM pg_publication_tables WHERE tablename = 'seen' ORDER BY pubname`), "; ")
	if want := `few {id,Odd} ((id > 7) AND (id < 9)); more {id}`; got != want {
		t.Errorf("published: %s, want %s", got, want)
	}
}
