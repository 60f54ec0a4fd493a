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

const quietTown = "databases: [{match: 'tenant_*'}]\nlease: 1s\ntenants: {awake: 1, look: 20s}\npipelines:\n" +
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
// something there is answered, by SQL and commands, and a change is embedded within seconds.
func TestP5_AQuietDatabaseRests(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.write(quietTown)
	for _, name := range []string{"tenant_a", "tenant_b", "tenant_c"} {
		w.settle(name, 5)
	}
	c := w.up()
	w.rests(c, "tenant_a", "tenant_b", "tenant_c")
	began := time.Now()
	w.exec("tenant_a", "INSERT INTO docs VALUES (100, 'wakes it')")
	w.embedded(c, "tenant_a", 6)
	t.Logf("a lone change of one that rests: %s", time.Since(began).Round(time.Millisecond))
	w.rests(c, "tenant_c")
	if status, body := w.answer("/readyz"); status != http.StatusOK || strings.Contains(body, "[-]") {
		t.Errorf("readyz: %d %s", status, body)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // it may be looked at just then
		said := w.says(0, "status", "--database", "tenant_c")
		return strings.Contains(said, "no changes since") && strings.Contains(said, "up to date"), said
	})
	w.says(0, "check", "--database", "tenant_c")

	// Those who wait inside of one statement change nothing that a server counts, nor do commands that wait.
	w.rests(c, "tenant_b")
	w.exec("tenant_b", "CALL embedsidecar.ask('public.docs', 'who is there?', '1 min')")
	w.rests(c, "tenant_b")
	w.exec("tenant_b", "DO $$ BEGIN ASSERT embedsidecar.wait_for(timeout => '1 min'); END $$")
	w.rests(c, "tenant_b")
	w.exec("tenant_b", "CALL embedsidecar.wait_until(timeout => '1 min')")
	w.rests(c, "tenant_b")
	w.says(0, "wait", "--database", "tenant_b", "--caught-up", "--timeout", "1m")
	w.rests(c, "tenant_b")

	// What wakes a database and is no change of a pipeline's rows has it worked for seconds, not for a fifth of an hour.
	w.exec("tenant_a", "CREATE TABLE others (id int)")
	w.write(strings.Replace(quietTown, "look: 20s", "look: 1h", 1))
	w.rests(c, "tenant_a")
	w.exec("tenant_a", "INSERT INTO others SELECT generate_series(1, 100)")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return w.sessions("tenant_a") > 0, "changes of another table do not wake it: " + c.tail()
	})
	w.rests(c, "tenant_a", "tenant_b")
	w.exec("tenant_b", "TRUNCATE docs")
	w.embedded(c, "tenant_b", 0)
	c.terminate()
	w.says(0, "verify")
}

// TestP5_WhateverHappensToADatabaseThatRests: its slot is lost, it is renamed or dropped, the file is another one, the
// program is killed.
func TestP5_WhateverHappensToADatabaseThatRests(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.write(quietTown)
	for _, name := range []string{"tenant_a", "tenant_b", "tenant_c", "tenant_d"} {
		w.settle(name, 5)
	}
	w.exec("tenant_a", "ALTER TABLE docs ADD COLUMN title text DEFAULT 'a title'")
	c := w.up()
	w.rests(c, "tenant_a", "tenant_b", "tenant_c", "tenant_d")

	w.alone("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'tenant_b'")
	w.exec("tenant_b", "INSERT INTO docs VALUES (100, 'the slot is gone')")
	w.embedded(c, "tenant_b", 6)

	w.rests(c, "tenant_c")
	w.alone("ALTER DATABASE tenant_c RENAME TO tenant_z")
	w.exec("tenant_z", "INSERT INTO docs VALUES (100, 'it has another name')")
	w.embedded(c, "tenant_z", 6)

	w.rests(c, "tenant_d")
	w.alone("DROP DATABASE tenant_d")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		_, body := w.answer("/metrics")
		return !strings.Contains(body, `database="tenant_d"`), "tenant_d is told of"
	})

	w.rests(c, "tenant_a")
	w.write(quietTown + "- {name: titles, table: public.docs, columns: [title], into: {table: titles_embedding}}\n")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return w.number("tenant_a", "SELECT count(*) FROM titles_embedding") == 5, c.tail()
	})

	w.rests(c, "tenant_a")
	c.kill()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := w.number("tenant_a", "SELECT count(*) FROM embedsidecar.status WHERE state = 'no_sidecar'")
		return n == 2, "the one that was killed is thought to be there"
	})
	w.exec("tenant_a", "INSERT INTO docs VALUES (100, 'while it is down')")
	c = w.up()
	w.embedded(c, "tenant_a", 6)
	w.rests(c, "tenant_a")
	w.says(0, "uninstall", "--database", "tenant_a", "--yes")
	c.terminate()
}
