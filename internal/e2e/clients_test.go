//go:build linux && clients

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// clients are real ones: Django and SQLAlchemy, node-postgres, PgBouncer in transaction mode. make test-clients
// brings them.
type clients struct {
	t      *testing.T
	folder string
	port   string // of PgBouncer
	name   string // of the database there
}

// pooled starts PgBouncer in front of a database, for its owner and for a role that runs the sidecar. Anybody may log
// in.
func pooled(t *testing.T, db *testenv.Database) *clients {
	t.Helper()
	c := &clients{t: t, folder: os.Getenv("EMBEDSIDECAR_CLIENTS"), name: "app"}
	if c.folder == "" {
		t.Fatal("EMBEDSIDECAR_CLIENTS names no folder: make test-clients does")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, c.port, _ = net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	as := func(role string) string {
		u, err := url.Parse(db.URL(role))
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		return fmt.Sprintf("host=%s port=%s dbname=%s user=%s password=%s", u.Hostname(), u.Port(), db.Name, role, password)
	}
	config := filepath.Join(t.TempDir(), "pgbouncer.ini")
	body := "[databases]\n" + c.name + " = " + as(testenv.Owner) +
		"\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + c.port +
		"\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 200\n"
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{config}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...)
	}
	bouncer := exec.Command(filepath.Join(c.folder, "pgbouncer", "usr", "sbin", "pgbouncer"), args...)
	bouncer.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(c.folder, "pgbouncer", "lib")}
	bouncer.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	bouncer.Stdout, bouncer.Stderr = &log, &log
	if err := bouncer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = bouncer.Wait(); close(ended) }()
	t.Cleanup(func() { _ = bouncer.Process.Kill(); <-ended })
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		select {
		case <-ended:
			t.Fatal(log.String())
		default:
		}
		conn, err := net.Dial("tcp", "127.0.0.1:"+c.port)
		if err != nil {
			return false, err.Error()
		}
		return conn.Close() == nil, ""
	})
	return c
}

// app returns the application's call.
func (c *clients) app(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.folder, "venv", "bin", "python3"), append([]string{"app.py"},
		args...)...)
	cmd.Dir = filepath.Join("testdata", "clients")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "APP_PORT=" + c.port, "APP_DATABASE=" + c.name}
	return cmd
}

// do runs the application, which must not fail.
func (c *clients) do(args ...string) {
	c.t.Helper()
	if out, err := c.app(args...).CombinedOutput(); err != nil {
		c.t.Fatalf("the application failed: %v\n%s", err, out)
	}
}

// begin starts the application and waits for its first word. The function it returns tells it to go on, and waits for
// its end.
func (c *clients) begin(args ...string) (end func()) {
	c.t.Helper()
	cmd := c.app(args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	words := bufio.NewScanner(out)
	words.Scan()
	return func() {
		c.t.Helper()
		_, _ = fmt.Fprintln(in)
		for words.Scan() {
			continue
		}
		if err := cmd.Wait(); err != nil {
			c.t.Fatalf("the application failed: %v\n%s", err, errOut.String())
		}
	}
}

// TestClients_AnApplicationInDjango: through PgBouncer, an application migrates its keys to bigint, renames a column,
// changes a type, and saves objects with the vectors that they had once. It never fails, no text is paid for twice,
// and every vector is right at the end.
func TestClients_AnApplicationInDjango(t *testing.T) {
	t.Parallel()
	const rows = 60
	db := testenv.DB(t, testenv.Empty())
	// psycopg reads no other
	db.MustExecSuper("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET datestyle = 'ISO, MDY'")
	c := pooled(t, db)
	c.do("migrate", "0001_initial")
	c.do("fill", strconv.Itoa(rows))
	article := pipeline.Spec{
		Name: "articles", Schema: "public", Table: "shop_article", Columns: []string{"title", "body"},
		IntoColumn: "embedding", Enabled: true,
	}
	note := pipeline.Spec{
		Name: "notes", Schema: "public", Table: "shop_note", Columns: []string{"body"},
		IntoTable: "shop_note_embedding", Enabled: true,
	}
	r := newRig(t, db, article, note)
	r.leisurely()
	s := r.run()
	r.caughtUp()
	sent := r.sent()
	if sent != 2*rows {
		t.Errorf("%d texts were sent for %d", sent, 2*rows)
	}
	costs := func(what string, least, most int) {
		t.Helper()
		r.caughtUp()
		now := r.sent()
		if n := now - sent; n < least || n > most {
			t.Errorf("%s: %d texts were sent, want %d to %d", what, n, least, most)
		}
		r.do(0, "verify", "--deep", "1000000")
		sent = r.sent() // the verification embeds them all
	}

	end := c.begin("stale", "0001_initial")
	r.caughtUp()
	end()
	costs("stale objects", 2, 4) // the fresh one, a text of its own, and somebody else's if it was seen before it was gone

	c.do("migrate", "0002_rename")
	costs("a renamed field", 0, 0)

	c.do("migrate", "0003_bigauto")
	// An embedding table's key is widened by whoever deploys: the sidecar's role may not.
	r.url = r.login(testenv.Owner)
	article.Columns, note.Columns = []string{"title", "content"}, []string{"content"}
	said := r.do(0, "init", "--config", r.config([]pipeline.Spec{article, note}))
	if !strings.Contains(said, `ALTER COLUMN "id" TYPE bigint`) {
		t.Errorf("init said: %s", said)
	}
	r.url = r.login(r.role)
	costs("BigAutoField", 0, 0)

	end = c.begin("load", "3")
	c.do("migrate", "0004_varchar")
	end()
	r.caughtUp()
	sent = r.sent()
	costs("nothing", 0, 0)
	end = c.begin("stale", "0004_varchar")
	r.caughtUp()
	end()
	costs("stale objects of today", 0, 2) // most of their texts are known by now

	node := exec.CommandContext(t.Context(), "node", "nearest.js")
	node.Dir = filepath.Join("testdata", "clients")
	node.Env = []string{
		"PATH=" + os.Getenv("PATH"), "NODE_PATH=" + filepath.Join(c.folder, "node", "node_modules"),
		"APP_PORT=" + c.port, "APP_DATABASE=" + c.name,
	}
	if out, err := node.CombinedOutput(); err != nil {
		t.Errorf("node-postgres: %v\n%s", err, out)
	}
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	s.mustLive()
}
