//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// town is a server of several databases, and a program that works those whose names begin with tenant_.
type town struct {
	*rig

	server *testenv.Server
	file   string
	probes string // address

	control string // folder, whose name is short: it has sockets
}

func newTown(t *testing.T, config map[string]string) *town {
	t.Helper()
	dir := t.TempDir()
	control, err := os.MkdirTemp(programs, "c") //nolint:usetesting // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	w := &town{
		control: control,
		rig:     &rig{t: t, dir: dir, calls: filepath.Join(dir, "calls")},
		server:  testenv.Own(t, testenv.Options{Config: config}),
		file:    filepath.Join(dir, "tenants.yaml"), probes: testenv.Nowhere(t),
	}
	w.write(`
databases: [{match: 'tenant_*'}]
pipelines: [{table: public.docs, columns: [body], into: {table: docs_embedding}}]
lease: 1s
`)
	return w
}

// write puts the configuration into its place, as editors do: nobody reads half of it.
func (w *town) write(text string) {
	w.t.Helper()
	err := os.WriteFile(w.file+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(w.file+".new", w.file)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// environ is what every process of the town gets.
func (w *town) environ() []string {
	return []string{
		"PATH=/usr/bin:/bin", "EMBEDSIDECAR_LOG_FORMAT=text", "HOME=" + w.dir, "TMPDIR=" + programs,
		"EMBEDSIDECAR_CONFIG=" + w.file, "EMBEDSIDECAR_DATABASE_URL=" + w.server.URL("postgres", ""),
		"EMBEDSIDECAR_OPS_LISTEN=" + w.probes, "EMBEDSIDECAR_PLUGIN_DIR=" + programs, "EMBEDSIDECAR_PLUGIN=fake",
		fmt.Sprintf("EMBEDSIDECAR_PLUGIN_DIMS=%d", dims), "EMBEDSIDECAR_PLUGIN_CALLS=" + w.calls,
		"EMBEDSIDECAR_CONTROL_DIR=" + w.control,
	}
}

func (w *town) up(args ...string) *child {
	return w.startPlain(w.environ(), append([]string{"run"}, args...)...)
}

// says runs a command to its end, which must have this status, and returns what it said.
func (w *town) says(status int, args ...string) string {
	w.t.Helper()
	c := w.startPlain(w.environ(), args...)
	if s := c.wait(waitTimeout); s.ExitStatus() != status {
		w.t.Fatalf("embedsidecar %s: %v, want status %d:\n%s", strings.Join(args, " "), c.cmd.ProcessState, status, c.tail())
	}
	said, err := os.ReadFile(c.log)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(said)
}

// exec executes statements in a database.
func (w *town) exec(database string, statements ...string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.server.URL(database, ""))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close(w.t.Context()) }()
	for _, sql := range statements {
		if _, err := conn.Exec(w.t.Context(), sql); err != nil {
			w.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// alone executes a statement about a database, or its slot, that nobody may use meanwhile, as soon as nobody does: the
// program looks at those that rest, and sessions of a process that has ended are there for another moment.
func (w *town) alone(sql string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.server.URL("postgres", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close(w.t.Context()) }()
	testenv.Eventually(w.t, waitTimeout, func() (bool, string) {
		_, err := conn.Exec(w.t.Context(), sql)
		if pg, is := errors.AsType[*pgconn.PgError](err); err != nil && (!is || pg.Code != pgerrcode.ObjectInUse) {
			w.t.Fatalf("%s: %v", sql, err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// number is what a query says, or -1 where it cannot be asked now.
func (w *town) number(database, sql string) (n int) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.server.URL(database, ""))
	if err != nil {
		return -1
	}
	defer func() { _ = conn.Close(w.t.Context()) }()
	if err := conn.QueryRow(w.t.Context(), sql).Scan(&n); err != nil {
		return -1
	}
	return n
}

// settle makes a database with rows to embed.
func (w *town) settle(database string, rows int) {
	w.t.Helper()
	w.exec("postgres", "CREATE DATABASE "+database)
	w.exec(database, "CREATE EXTENSION vector", "CREATE TABLE docs (id bigint PRIMARY KEY, body text)",
		fmt.Sprintf("INSERT INTO docs SELECT i, '%s ' || i FROM generate_series(1, %d) AS i", database, rows))
}

// embedded waits until a database has so many vectors.
func (w *town) embedded(c *child, database string, rows int) {
	w.t.Helper()
	testenv.Eventually(w.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		n := w.number(database, "SELECT count(*) FROM docs_embedding")
		return n == rows, fmt.Sprintf("%s has %d vectors, want %d: %s", database, n, rows, c.tail())
	})
}

// answer is what an address of the probes says.
func (w *town) answer(path string) (status int, body string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.probes+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(said)
}

// TestP5_OneTenantsTroubleIsItsAlone: databases are found, one that is broken is told and harms no other, new ones come
// by themselves, and one that is dropped in the middle of its backfill leaves neither slot, connection nor figure.
func TestP5_OneTenantsTroubleIsItsAlone(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.settle("tenant_a", 20)
	w.settle("tenant_b", 30)
	w.exec("postgres", "CREATE DATABASE tenant_empty", "CREATE DATABASE elsewhere")
	c := w.up()
	w.embedded(c, "tenant_a", 20)
	w.embedded(c, "tenant_b", 30)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		status, body := w.answer("/readyz")
		return status == http.StatusOK && strings.Contains(body, "[-]database tenant_empty: failing"), body
	})

	var all struct {
		Databases []struct {
			Database, Error string
			Pipelines       []struct{ Name, State string }
		}
	}
	said := w.says(3, "status", "-o", "json")
	if err := json.NewDecoder(strings.NewReader(said)).Decode(&all); err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	if len(all.Databases) != 3 || len(all.Databases[0].Pipelines) != 1 || all.Databases[2].Error == "" {
		t.Errorf("status of all: %+v", all)
	}
	if said := w.says(2, "pause"); !strings.Contains(said, "--database") {
		t.Errorf("to choose none of several: %s", said)
	}
	w.says(0, "pause", "--database", "tenant_b")
	if said := w.says(0, "status", "--database", "tenant_b"); !strings.Contains(said, "paused") {
		t.Errorf("it is not paused: %s", said)
	}
	w.exec("tenant_b", "INSERT INTO docs VALUES (1000, 'waits')")

	w.settle("tenant_new", 5)
	w.embedded(c, "tenant_new", 5)

	w.exec("tenant_a", "INSERT INTO docs SELECT i, 'more ' || i FROM generate_series(1000, 30000) AS i")
	w.exec("postgres", "ALTER DATABASE tenant_a ALLOW_CONNECTIONS false")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		n := w.number("postgres", `SELECT count(*) FROM pg_stat_activity WHERE datname = 'tenant_a'`)
		return n == 0, fmt.Sprintf("%d connections: %s", n, c.tail())
	})
	w.alone("DROP DATABASE tenant_a")
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // a stream of the others may be about to begin
		n := w.number("postgres", "SELECT count(*) FROM pg_replication_slots WHERE NOT active")
		return n == 0, fmt.Sprintf("%d slots are left", n)
	})
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		_, body := w.answer("/metrics")
		return strings.Contains(body, `database="tenant_b"`) && !strings.Contains(body, `database="tenant_a"`), "of it is told"
	})

	c.kill()
	w.exec("tenant_new", "INSERT INTO docs VALUES (1000, 'while it was down')")
	c = w.up()
	w.embedded(c, "tenant_new", 6)
	if n := w.number("tenant_b", "SELECT count(*) FROM docs_embedding"); n != 30 {
		t.Errorf("the paused one has %d vectors, want 30", n)
	}
	w.says(0, "resume", "--database", "tenant_b")
	w.embedded(c, "tenant_b", 31)
	w.says(2, "resume", "--database", "nobody")
	c.terminate()
}

// TestP1_EachDatabaseIsWorkedOnce: a run that ends by itself works every database that is named, and a renamed one
// keeps its slot.
func TestP1_EachDatabaseIsWorkedOnce(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.settle("tenant_a", 10)
	w.settle("tenant_b", 12)
	if s := w.up("--once").wait(waitTimeout); s.ExitStatus() != 0 {
		t.Fatalf("it ended with %d", s.ExitStatus())
	}
	for database, rows := range map[string]int{"tenant_a": 10, "tenant_b": 12} {
		if n := w.number(database, "SELECT count(*) FROM docs_embedding"); n != rows {
			t.Errorf("%s has %d vectors, want %d", database, n, rows)
		}
	}
	w.alone("ALTER DATABASE tenant_a RENAME TO tenant_z")
	w.exec("tenant_z", "INSERT INTO docs VALUES (1000, 'more')")
	if s := w.up("--once").wait(waitTimeout); s.ExitStatus() != 0 {
		t.Fatalf("it ended with %d", s.ExitStatus())
	}
	if n := w.number("tenant_z", "SELECT count(*) FROM docs_embedding"); n != 11 {
		t.Errorf("after its renaming it has %d vectors, want 11", n)
	}
	if n := w.number("postgres", "SELECT count(*) FROM pg_replication_slots"); n != 2 {
		t.Errorf("%d slots, want 2", n)
	}
	w.says(0, "verify")
}

// TestTenants_RowsInWorkAreOfAll: the limit of rows in work is that of the process, whatever the number of databases.
func TestTenants_RowsInWorkAreOfAll(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	const each, cost = 30, 20 * time.Millisecond
	w.settle("tenant_a", each)
	w.settle("tenant_b", each)
	w.write("databases: [{match: 'tenant_*'}]\nlimits: {rows_in_work: 1}\n" +
		"pipelines: [{table: public.docs, columns: [body], into: {table: docs_embedding}}]\n")
	c := w.startPlain(append(w.environ(), "EMBEDSIDECAR_PLUGIN_FAULTS=cost="+cost.String()+"/text"), "run", "--once")
	if s := c.wait(waitTimeout); s.ExitStatus() != 0 {
		t.Fatalf("it ended with %d: %s", s.ExitStatus(), c.tail())
	}
	var written []int
	for _, name := range []string{"tenant_a", "tenant_b"} {
		for _, of := range []string{"min", "max"} {
			written = append(written, w.number(name,
				"SELECT mod((1000 * extract(epoch FROM "+of+"(embedded_at)))::bigint, 1000000000)::int FROM docs_embedding"))
		}
	}
	took := time.Duration(max(written[1], written[3])-min(written[0], written[2])) * time.Millisecond
	if least := (2*each - 1) * cost; took < least {
		t.Errorf("%d rows were written within %s, want one at a time: %s at least", 2*each, took, least)
	}
	calls, err := vector.ReadCalls(w.calls)
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if len(call.Hashes) > 1 && !slices.Contains(call.Hashes, vector.Hash(host.CanaryTexts()[0])) {
			t.Errorf("a call has %d texts", len(call.Hashes))
		}
	}
}

// TestTenants_EveryVerbIsOfOneTenant: by the command line and over HTTP each verb is done in the database and on the
// schema that is named, and in no other.
func TestTenants_EveryVerbIsOfOneTenant(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	names := []string{"tenant_a", "tenant_b"} // of databases, and of schemas in each
	for _, database := range names {
		w.exec("postgres", "CREATE DATABASE "+database)
		w.exec(database, append(append(oneRow(names[0]), oneRow(names[1])...), "CREATE EXTENSION vector")...)
	}
	w.write("databases: [{match: 'tenant_*'}]\npipelines: [{schemas: {match: 'tenant_*'}, table: docs, columns: [body], " +
		"into: {table: docs_embedding}}]\n")
	tokens, at := filepath.Join(w.dir, "tokens"), testenv.Nowhere(t)
	told := strings.Fields(w.says(0, "token", "create", "ops", "--role", "admin", "--tokens-file", tokens))
	c := w.up("--admin-listen", at, "--tokens-file", tokens)
	for _, database := range names {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			n := w.number(database, "SELECT count(*) FROM tenant_a.docs_embedding, tenant_b.docs_embedding")
			return n == 1, database + ": " + c.tail()
		})
	}
	send := func(database, path string, body map[string]any) {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/api/v1"+path+"?database="+database,
			strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+told[len(told)-1])
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		if said, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, answer.Status, said)
		}
	}
	audited := func(database, action, pipeline string) int {
		return w.number(database, fmt.Sprintf("SELECT count(*) FROM embedsidecar.audit WHERE action = '%s' AND "+
			"coalesce(pipeline, '') = '%s'", action, pipeline))
	}
	for _, v := range verbs.All {
		pipeline, args, body := "tenant_b.docs", []string{v.Name}, map[string]any{}
		path := "/pipelines/" + pipeline + "/" + v.Name
		if args = append(args, pipeline); v == verbs.SetPriority { // by the command line it is prioritise without keys
			args, body["priority"] = []string{"tasks", "prioritise", pipeline, "high"}, "high"
		}
		if v.Group != "" {
			args, path, body["pipelines"] = append([]string{v.Group}, args...), "/"+v.Group+"/"+v.Name, []string{pipeline}
		}
		switch v {
		case verbs.Prioritise:
			args, body["priority"] = append(args, "low", "--waiting"), "low"
		case verbs.Cancel:
			args, body["keys"] = append(args, "0"), []string{"0"}
		}
		w.says(0, append(args, "--database", "tenant_b")...)
		send("tenant_b", path, body)
		action := strings.ReplaceAll(v.Name, "-", "_")
		if v == verbs.SetPriority {
			action = v.SQL
		}
		if n := audited("tenant_b", action, pipeline); n != 2 {
			t.Errorf("%s: the audit of the tenant has %d entries, want 2", v.Name, n)
		}
	}
	for _, elsewhere := range []string{
		"tenant_a.embedsidecar.audit WHERE said_by <> ''", "tenant_b.embedsidecar.audit WHERE pipeline = 'tenant_a.docs' AND said_by <> ''",
	} {
		database, of, _ := strings.Cut(elsewhere, ".")
		if n := w.number(database, "SELECT count(*) FROM "+of); n != 0 {
			t.Errorf("%d entries in %s", n, elsewhere)
		}
	}
	c.terminate()
}

// TestP5_EachDatabaseFollowsTheFileByItself: a changed file is taken over while it runs, by each database for itself,
// and one that refuses it works on as before. Databases of another pattern come, and those of none go.
func TestP5_EachDatabaseFollowsTheFileByItself(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	for _, name := range []string{"tenant_a", "tenant_b", "tenant_odd", "other"} {
		w.settle(name, 5)
		if name != "tenant_odd" {
			w.exec(name, "ALTER TABLE docs ADD COLUMN title text DEFAULT 'a title'")
		}
	}
	const docs, titles = "{table: public.docs, columns: [body], into: {table: docs_embedding}}",
		"{name: titles, table: public.docs, columns: [title], into: {table: titles_embedding}}"
	c := w.up()
	for _, name := range []string{"tenant_a", "tenant_b", "tenant_odd"} {
		w.embedded(c, name, 5)
	}
	has := func(database, sql string, want int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			n := w.number(database, sql)
			return n == want, fmt.Sprintf("%s: %s says %d, want %d: %s", database, sql, n, want, c.tail())
		})
	}
	// One that is busy for long refuses at first, for that reason.
	const reloaded = "SELECT least(count(*), 1) FROM embedsidecar.audit WHERE action = 'reload' AND result = "
	w.write("databases: [{match: 'tenant_*'}]\nlease: 1s\npipelines:\n- " + docs + "\n- " + titles + "\n")
	for _, name := range []string{"tenant_a", "tenant_b"} {
		has(name, "SELECT count(*) FROM titles_embedding", 5)
		has(name, reloaded+"'done'", 1)
	}
	has("tenant_odd", reloaded+"'refused'", 1)
	has("tenant_odd", "SELECT count(*) FROM embedsidecar.configuration WHERE subject = 'file' AND state = 'refused'", 1)
	w.exec("tenant_odd", "INSERT INTO docs VALUES (100, 'goes on')")
	w.embedded(c, "tenant_odd", 6)
	if said := w.says(4, "reload"); !strings.Contains(said, "tenant_odd") || !strings.Contains(said, "title") {
		t.Errorf("reload: %s", said)
	}

	// By hand, too, each for itself.
	w.exec("tenant_odd", "ALTER TABLE docs ADD COLUMN title text DEFAULT 'late'")
	if said := w.says(0, "apply", "--yes"); !strings.Contains(said, "titles") {
		t.Errorf("apply: %s", said)
	}
	has("tenant_odd", "SELECT count(*) FROM embedsidecar.pipeline", 2)
	w.says(0, "reload")
	has("tenant_odd", "SELECT count(*) FROM titles_embedding", 6)

	// A bad file changes nothing anywhere.
	w.write("databases: [{match: 'tenant_*'}]\nlease: 1s\npipelines:\n- {table: public.docs, columns: [nothing], into: {table: docs_embedding}}\n")
	for _, name := range []string{"tenant_a", "tenant_b"} {
		w.exec(name, "INSERT INTO docs VALUES (100, 'goes on', 'it does')")
		w.embedded(c, name, 6)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return c.said("configuration refused: the one before stays in force"), c.tail()
	})
	// shown checks what the view, the metric and the probe say of it.
	shown := func(refused int) {
		t.Helper()
		for _, name := range []string{"tenant_a", "tenant_b"} {
			has(name, "SELECT count(*) FROM embedsidecar.configuration WHERE subject = 'file' AND state = 'refused'", refused)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				_, body := w.answer("/metrics")
				return regexp.MustCompile(fmt.Sprintf(`embedsidecar_configuration_refused\{[^}]*%q[^}]*\} %d\n`, name, refused)).
					MatchString(body), body
			})
		}
		if _, body := w.answer("/readyz?verbose"); strings.Contains(body, "[-]configuration: ") != (refused == 1) {
			t.Errorf("with %d refusals: %s", refused, body)
		}
	}
	shown(1)
	// Back to what is in force, then a file that cannot be read.
	w.write("databases: [{match: 'tenant_*'}]\nlease: 1s\npipelines:\n- " + docs + "\n- " + titles + "\n")
	shown(0)
	w.write("databases: [{match: 'tenant_*'}]\nlease: soon\n")
	shown(1)

	// Settings of all, another pattern, and a pipeline that is taken out.
	w.write("databases: [{match: 'tenant_?'}, {name: other, weight: 2}]\nlease: 1s\n" +
		"workers: {batch_rows: 7}\nlimits: {rows_per_second: 1000}\npipelines:\n- " + docs + "\n")
	w.embedded(c, "other", 5)
	for _, name := range []string{"tenant_a", "tenant_b"} {
		has(name, "SELECT count(*) FROM embedsidecar.pipeline", 1)
		w.exec(name, "INSERT INTO docs VALUES (101, 'after all')")
		w.embedded(c, name, 7)
	}
	has("postgres", "SELECT count(*) FROM pg_stat_activity WHERE datname = 'tenant_odd'", 0)
	c.terminate()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := w.number("postgres", "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'embedsidecar%'")
		return n == 0, fmt.Sprintf("%d connections are left", n)
	})
	w.says(0, "verify")
}

// TestP5_ADatabaseThatCannotBeWorkedSaysWhy: what stands in the way of one is said with the way out, and the others go
// on.
func TestP5_ADatabaseThatCannotBeWorkedSaysWhy(t *testing.T) {
	t.Parallel()
	w := newTown(t, map[string]string{"max_replication_slots": "3"})
	w.settle("tenant_a", 5)
	if s := w.up("--once").wait(waitTimeout); s.ExitStatus() != 0 {
		t.Fatalf("it ended with %d", s.ExitStatus())
	}
	w.alone("CREATE DATABASE tenant_copy TEMPLATE tenant_a")
	w.settle("tenant_template", 5)
	w.exec("postgres", "ALTER DATABASE tenant_template IS_TEMPLATE true")
	w.settle("tenant_closed", 5)
	w.exec("postgres", "ALTER DATABASE tenant_closed ALLOW_CONNECTIONS false")
	w.settle("tenant_reads", 5)
	w.exec("postgres", "ALTER DATABASE tenant_reads SET default_transaction_read_only = on")
	w.settle("tenant_bare", 5)
	w.exec("tenant_bare", "DROP EXTENSION vector", "CREATE SCHEMA vector", "CREATE TYPE public.vector AS (not_ours int)")
	w.settle("tenant_last", 5)
	w.exec("postgres", "SELECT pg_create_physical_replication_slot('taken_' || i) FROM generate_series(1, 2) AS i")
	c := w.up()
	why := map[string][]string{
		"tenant_copy": {"copy", "init --adopt"}, "tenant_bare": {"vector"},
		"tenant_reads": {"all replication slots are in use"}, "tenant_last": {"all replication slots are in use"},
	}
	for name, words := range why {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			status, body := w.answer("/readyz")
			_, after, _ := strings.Cut(body, "[-]database "+name+": failing")
			line, _, _ := strings.Cut(after, "[")
			for _, word := range words {
				if !strings.Contains(line, word) {
					return false, fmt.Sprintf("of %s, want it to say %q: %s", name, word, body)
				}
			}
			return status == http.StatusOK, body
		})
	}
	w.exec("tenant_a", "INSERT INTO docs VALUES (100, 'goes on')")
	w.embedded(c, "tenant_a", 6)
	_, body := w.answer("/readyz")
	if strings.Contains(body, "tenant_template") || strings.Contains(body, "tenant_closed") {
		t.Errorf("templates and closed databases are none: %s", body)
	}

	// What stood in the way is taken away.
	w.exec("postgres", "SELECT pg_drop_replication_slot('taken_' || i) FROM generate_series(1, 2) AS i",
		"ALTER DATABASE tenant_reads RESET default_transaction_read_only")
	w.embedded(c, "tenant_last", 5)
	w.embedded(c, "tenant_reads", 5) // read-only is a default there, which says nothing of this program
	if said := w.says(3, "status", "-o", "json"); !strings.Contains(said, "tenant_copy") {
		t.Errorf("status: %s", said)
	}
	c.terminate()
}

// TestP5_AServerWithoutLogicalWALSaysSo: the program goes on looking, and says what to set.
func TestP5_AServerWithoutLogicalWALSaysSo(t *testing.T) {
	t.Parallel()
	w := newTown(t, map[string]string{"wal_level": "replica"})
	w.settle("tenant_a", 5)
	c := w.up()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		status, body := w.answer("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "wal_level"), body
	})
	if said := w.says(3, "status"); !strings.Contains(said, "tenant_a") {
		t.Errorf("status: %s", said)
	}
	c.terminate()
}

// TestP5_ADatabaseThatFindsNoWalsenderSaysSo: the others go on, and it gets its own when one is free.
func TestP5_ADatabaseThatFindsNoWalsenderSaysSo(t *testing.T) {
	t.Parallel()
	w := newTown(t, map[string]string{"max_wal_senders": "2"})
	w.settle("tenant_a", 5)
	c := w.up()
	w.embedded(c, "tenant_a", 5)
	other, err := pgconn.Connect(t.Context(), w.server.URL("postgres", "")+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(t.Context()) }()
	w.settle("tenant_b", 5)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		_, body := w.answer("/readyz")
		_, after, _ := strings.Cut(body, "[-]database tenant_b: ") // as it is set up, or when it is
		line, _, _ := strings.Cut(after, "[")
		return strings.Contains(line, "(for the stream also max_wal_senders)"), body + c.tail()
	})
	w.exec("tenant_a", "INSERT INTO docs VALUES (100, 'goes on')")
	w.embedded(c, "tenant_a", 6)
	w.exec("tenant_b", "INSERT INTO docs VALUES (100, 'is kept')")
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.embedded(c, "tenant_b", 6)
	c.terminate()
}

// TestTenants_IdleOnesCostLittle measures what tenants cost that have nothing to do, and how soon a lone change of an
// active one is embedded: as databases and as schemas, a tenth of which is active. make bench-tenants runs it with more
// of them, one number after another, and draws a picture of it.
func TestTenants_IdleOnesCostLittle(t *testing.T) {
	t.Parallel()
	few := tenants{n: 4, changes: 10, idle: 10 * time.Second, look: "10s"}
	forms := map[string]func(*tenants, *testing.T){databases: (*tenants).asDatabases, schemas: (*tenants).asSchemas}
	bench := os.Getenv("EMBEDSIDECAR_TENANTS") // such as databases=1,10,50 schemas=1,10,50,200
	if bench == "" {
		for form, measure := range forms {
			t.Run(form, func(t *testing.T) {
				t.Parallel()
				m := few
				measure(&m, t)
			})
		}
		return
	}
	var all []tenants
	for asked := range strings.FieldsSeq(bench) {
		form, numbers, _ := strings.Cut(asked, "=")
		for number := range strings.SplitSeq(numbers, ",") {
			m := tenants{form: form, changes: 50, idle: 45 * time.Second, look: "2m"}
			var err error
			if m.n, err = strconv.Atoi(number); err != nil || forms[form] == nil {
				t.Fatalf("EMBEDSIDECAR_TENANTS: %q: %v", asked, err)
			}
			t.Run(form+" "+number, func(t *testing.T) { forms[form](&m, t) })
			all = append(all, m)
		}
	}
	drawTenants(t, all, os.Getenv("EMBEDSIDECAR_PICTURE"))
}

const databases, schemas = "databases", "schemas"

// tenants are so many of them, a tenth of which is active, and what they cost.
type tenants struct {
	form        string
	n           int
	changes     int           // lone ones, at least
	idle        time.Duration // for so long it is looked what those cost that have nothing to do
	look        string        // how often one at rest is looked at
	cpu         float64       // of a core, when all are idle
	connections float64       // then, on average
	working     float64       // with some active, on average
	mib         int           // of memory at most
	first       int           // ms until the first lone change of one is embedded, at most
	median, p99 int           // ms of the others
	place       func(i int) (database, schema string)
}

func (m *tenants) active() int { return max(m.n/10, 1) }

func (m *tenants) asDatabases(t *testing.T) {
	t.Helper()
	w := newTown(t, map[string]string{
		"max_replication_slots": "1000", "max_wal_senders": "1000", "max_connections": "2000",
	})
	w.write(fmt.Sprintf("databases: [{match: 'tenant_*'}]\ntenants: {awake: %d, look: %s}\nlease: 1s\n"+
		"pipelines: [{table: public.docs, columns: [body], into: {table: docs_embedding}}]\n", max(min(m.n-1, 20), 1), m.look))
	for i := range m.n {
		w.exec("postgres", fmt.Sprintf("CREATE DATABASE tenant_%d", i))
		w.exec(fmt.Sprintf("tenant_%d", i), append(oneRow("public"), "CREATE EXTENSION vector")...)
	}
	m.place = func(i int) (string, string) { return fmt.Sprintf("tenant_%d", i), "public" }
	m.measure(t, w, w.up())
}

func (m *tenants) asSchemas(t *testing.T) {
	t.Helper()
	w := newTown(t, nil)
	w.exec("postgres", "CREATE DATABASE all_of_them")
	w.exec("all_of_them", "CREATE EXTENSION vector")
	for i := range m.n {
		w.exec("all_of_them", oneRow(fmt.Sprintf("tenant_%d", i))...)
	}
	w.write("database: {url: '" + w.server.URL("all_of_them", "") + "'}\npipelines: [{schemas: {match: 'tenant_*'}, " +
		"table: docs, columns: [body], into: {table: docs_embedding}}]\nlease: 1s\n")
	m.place = func(i int) (string, string) { return "all_of_them", fmt.Sprintf("tenant_%d", i) }
	m.measure(t, w, w.startPlain(slices.DeleteFunc(w.environ(), func(v string) bool {
		return strings.HasPrefix(v, "EMBEDSIDECAR_DATABASE_URL=")
	}), "run"))
}

// oneRow makes a tenant's table.
func oneRow(schema string) []string {
	return []string{
		"CREATE SCHEMA IF NOT EXISTS " + schema,
		"CREATE TABLE " + schema + ".docs (id bigint PRIMARY KEY, body text, at timestamptz DEFAULT clock_timestamp())",
		"INSERT INTO " + schema + ".docs VALUES (0, 'the first')",
	}
}

// measure has all set up, and looks what they cost: with nothing to do, and with some active.
func (m *tenants) measure(t *testing.T, w *town, c *child) {
	t.Helper()
	began := time.Now()
	for i := range m.n {
		database, schema := m.place(i)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return w.number(database, "SELECT count(*) FROM "+schema+".docs_embedding") == 1, schema + ": " + c.tail()
		})
	}
	t.Logf("%d tenants: all set up and embedded after %s", m.n, time.Since(began).Round(time.Second))
	first, _ := m.place(0)
	if first == "tenant_0" && m.n > 1 {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			there := w.number("postgres", "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'tenant_%'")
			return there == 0, fmt.Sprintf("%d sessions: %s", there, c.tail())
		})
		t.Logf("all rest after %s", time.Since(began).Round(time.Second))
	}
	// held is how many connections there are on average in so long, while each second something is done.
	held := func(d time.Duration, each func()) float64 {
		sum, n := 0, 0
		for until := time.Now().Add(d); time.Now().Before(until); n++ {
			each()
			pause(t.Context(), time.Second)
			sum += w.number("postgres", "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'embedsidecar%'")
		}
		return float64(sum) / float64(n)
	}
	before, from := c.cpu(), time.Now()
	m.connections = held(m.idle, func() {})
	m.cpu = (c.cpu() - before).Seconds() / time.Since(from).Seconds()
	late, id := []int{}, 0
	change := func() {
		id++
		late = append(late, m.lone(t, w, c, id)...)
	}
	change()
	m.first, late = slices.Max(late), nil
	for range m.changes / m.active() {
		change()
	}
	if first == "tenant_0" {
		// Between two rounds of what is done now and then, an active one has the walsender and one session beside.
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			change()
			there := w.number("postgres", "SELECT count(*) FROM pg_stat_activity WHERE datname = '"+first+"'")
			return there == 2, fmt.Sprintf("%s has %d sessions, want 2", first, there)
		})
	}
	m.working, m.mib = held(m.idle/3, change), c.peak()>>10
	slices.Sort(late)
	m.median, m.p99 = late[len(late)/2], late[len(late)*99/100]
	t.Logf("idle: %.1f %% of a core, %.1f connections; with %d active: %.1f; the first lone change: %d ms at most, "+
		"then %d ms (median), %d ms (p99), %d ms at most; %d MiB at most", 100*m.cpu, m.connections, m.active(), m.working,
		m.first, m.median, m.p99, slices.Max(late), m.mib)
	if m.mib > 400 {
		t.Errorf("%d MiB of memory", m.mib)
	}
	c.terminate()
}

// lone makes a change in each active tenant, and returns after how many ms each is embedded.
func (m *tenants) lone(t *testing.T, w *town, c *child, id int) (late []int) {
	t.Helper()
	for i := range m.active() {
		database, schema := m.place(i)
		w.exec(database, fmt.Sprintf("INSERT INTO %s.docs VALUES (%d, 'a lone change')", schema, id))
	}
	for i := range m.active() {
		database, schema := m.place(i)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return w.number(database, "SELECT count(*) FROM "+schema+".docs_embedding") == id+1, schema
		})
		late = append(late, w.number(database, "SELECT (1000 * max(extract(epoch FROM e.embedded_at - d.at)))::int FROM "+
			schema+".docs AS d JOIN "+schema+".docs_embedding AS e USING (id) WHERE d.id = "+strconv.Itoa(id)))
	}
	return late
}

// cpu is how long the process has worked so far.
func (c *child) cpu() time.Duration {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
	if err != nil {
		c.t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			c.t.Fatal(err)
		}
		ticks += n
	}
	const perSecond = 100 // of every Linux that Go runs on
	return time.Duration(ticks) * time.Second / perSecond
}
