//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

const quietTown = "databases: [{match: 'tenant_*'}]\nlease: 1s\ntenants: {awake: 1, look: %s}\npipelines:\n" +
	"- {table: public.docs, columns: [body], into: {table: docs_embedding}}\n"

// sessions counts those of the program in a database.
func (w *town) sessions(database string) int {
	return w.number("postgres", "SELECT count(*) FROM pg_stat_activity WHERE datname = '"+database+
		"' AND application_name LIKE 'embedsidecar%'")
}

// rests waits until a database is quiet: no session of the program is in it, and it says so.
func (w *town) rests(c *child, databases ...string) {
	w.t.Helper()
	for _, name := range databases {
		testenv.Eventually(w.t, waitTimeout, func() (bool, string) {
			c.mustLive()
			n := w.sessions(name)
			quiet := w.number(name, "SELECT count(*) FROM embedsidecar.workers WHERE stream = 'quiet' AND runs")
			return n == 0 && quiet == 1, fmt.Sprintf("%s: %d sessions, %d quiet: %s", name, n, quiet, c.tail())
		})
	}
}

// TestP5_AQuietDatabaseRests: of many databases those where nothing changes keep no connection. Whatever asks for
// something there is answered, by HTTP, SQL and commands, and a change is embedded within seconds.
func TestP5_AQuietDatabaseRests(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.write(fmt.Sprintf(quietTown, "1h"))
	w.settle("tenant_a", 5)
	w.settle("tenant_b", 5)
	w.settle("tenant_c", 5)
	w.write(fmt.Sprintf(quietTown, "10s"))
	c := w.up()
	for _, name := range []string{"tenant_a", "tenant_b", "tenant_c"} {
		w.embedded(c, name, 5)
	}
	w.rests(c, "tenant_a", "tenant_b", "tenant_c")
	began := time.Now()
	w.exec("tenant_a", "INSERT INTO docs VALUES (100, 'wakes it')")
	w.embedded(c, "tenant_a", 6)
	t.Logf("a lone change of one that rests: %s", time.Since(began).Round(time.Millisecond))
	w.rests(c, "tenant_a", "tenant_b", "tenant_c")
	status, body := w.answer("/readyz?verbose")
	if status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
	said := w.says(0, "status")
	t.Log(said)
	if !strings.Contains(said, "looks again") {
		t.Errorf("status: %s", said)
	}
	t.Log(w.says(0, "check"))
	w.exec("tenant_b", "SELECT embedsidecar.embed('who is there?')")
	w.rests(c, "tenant_b")
	w.says(0, "wait", "--database", "tenant_b", "--timeout", "20s")
	c.terminate()
}
