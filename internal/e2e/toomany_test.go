//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_FiveThousandDatabases: a pattern that suddenly matches 5,000 databases displaces none that is served. Those
// beyond the limit are counted, and those that cannot be worked are told of. When they are gone, nothing is left of
// them.
func TestP5_FiveThousandDatabases(t *testing.T) {
	t.Parallel()
	const many, limit = 5000, 200
	w := newTown(t, map[string]string{"allow_system_table_mods": "on", "autovacuum": "off"})
	w.settle("tenant_one", 5)
	c := w.up()
	w.embedded(c, "tenant_one", 5)
	// They have no files: that would be 40 GB. Their names come before that of the one.
	w.exec("postgres", "CREATE TEMPORARY TABLE it AS SELECT * FROM pg_database WHERE datname = 'tenant_one'; "+
		fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE it SET oid = oid::bigint + 1, datname = 'tenant_' || i; "+
			"INSERT INTO pg_database SELECT * FROM it; END LOOP; END $$", many))
	unserved := func(n int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			_, body := w.answer("/metrics")
			want := fmt.Sprintf("embedsidecar_databases{state=\"unserved\"} %d\n", n)
			_, after, _ := strings.Cut(body, "embedsidecar_databases{")
			return strings.Contains(body, want), "want " + want + ": " + after[:min(len(after), 500)] + c.tail()
		})
	}
	unserved(many + 1 - limit)
	w.exec("tenant_one", "INSERT INTO docs VALUES (100, 'goes on')")
	w.embedded(c, "tenant_one", 6)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		status, body := w.answer("/readyz")
		return status == http.StatusOK && strings.Count(body, "[-]database ") == limit-1, body
	})
	if mib := c.peak() >> 10; mib > 400 {
		t.Errorf("%d MiB of memory", mib)
	}
	w.exec("postgres", "DELETE FROM pg_database WHERE datname ~ '^tenant_[0-9]+$'")
	unserved(0)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		status, body := w.answer("/readyz")
		return status == http.StatusOK && !strings.Contains(body, "[-]database "), body
	})
	w.exec("tenant_one", "INSERT INTO docs VALUES (101, 'still does')")
	w.embedded(c, "tenant_one", 7)
	c.terminate()
}
