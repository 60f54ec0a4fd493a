package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// fixture is a listener on a database with two pipelines, with a token of each kind.
type fixture struct {
	*testenv.Database
	t        *testing.T
	config   *config.Config
	pool     *pgxpool.Pool // the listener's: of the role that runs, which may act
	role     string
	base     string
	file     string
	tokens   map[string]string // by name
	checks   atomic.Int32
	promised *promised // schemas of the answers

	embed func(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error) // nil: there is no model
}

// newFixture sets up docs and notes, each with four rows. change modifies the listener's options.
func newFixture(t *testing.T, change ...func(f *fixture, o *gate.Options)) *fixture {
	t.Helper()
	f := &fixture{Database: testenv.DB(t), t: t, tokens: map[string]string{}, config: config.Default()}
	f.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text); CREATE TABLE notes (LIKE docs INCLUDING ALL)`)
	f.MustExec(`INSERT INTO docs SELECT i, 'CANARY ' || i FROM generate_series(1, 4) AS i`)
	f.MustExec(`INSERT INTO notes TABLE docs`)
	f.config.Slot.Name = f.SlotName()
	owner := f.connect(testenv.Owner)
	o := setup.Options{
		Pool: owner, ReplicationDSN: f.URL(testenv.Owner), Slot: f.config.Slot.Name, Publication: "embedsidecar",
		Descriptions: map[string]embed.Description{},
	}
	for _, name := range []string{"docs", "notes"} {
		o.Specs = append(o.Specs, pipeline.Spec{
			Name: "public." + name, Schema: "public", Table: name, Columns: []string{"body"}, IntoTable: name + "_embedding",
			Priority: pipeline.Normal, Enabled: true,
		})
		o.Descriptions["public."+name] = embed.Description{Plugin: "fake", Model: "m", Fingerprint: "f", Dims: 3}
	}
	if _, err := setup.Init(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	stored, err := resolve.Load(t.Context(), owner, f.config.Slot.Name)
	if err != nil {
		t.Fatal(err)
	}
	f.role = f.RunRole(stored...)
	_, operator := f.SQLRoles()
	f.MustExecSuper("GRANT " + operator + " TO " + f.role)
	f.pool = f.connect(f.role)

	f.file = filepath.Join(t.TempDir(), "tokens")
	for name, grant := range map[string]gate.Grant{
		"asker": {Role: gate.RoleQuery}, "reader": {Role: gate.RoleViewer}, "viewer": {Role: gate.RoleViewer},
		"operator": {Role: gate.RoleOperator}, "admin": {Role: gate.RoleAdmin},
		"scoped": {Role: gate.RoleOperator, Pipelines: []string{"public.docs"}},
		"tenant": {Role: gate.RoleOperator, Databases: []string{"one"}},
	} {
		if f.tokens[name], _, err = gate.CreateToken(f.file, name, grant); err != nil {
			t.Fatal(err)
		}
	}
	f.listen(change...)
	return f
}

func (f *fixture) connect(user string) *pgxpool.Pool { return f.connectTo(f.URL(user)) }

func (f *fixture) connectTo(url string) *pgxpool.Pool {
	f.t.Helper()
	pool, err := database.Connect(f.t.Context(), url+"&connect_timeout=120", database.Options{MaxConns: 4})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(pool.Close)
	return pool
}

// listen serves requests until the test ends.
func (f *fixture) listen(change ...func(f *fixture, o *gate.Options)) {
	f.t.Helper()
	tokens, err := gate.ReadTokens(f.file, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	o := gate.Options{
		Listen: "127.0.0.1:0", Tokens: tokens, Limits: gate.Limits{Rate: 10_000}, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(f, &o)
	}
	service := admin.NewService(admin.ServiceOptions{
		Config: f.config, Redact: strings.NewReplacer("hunter2", "***").Replace, Log: o.Log,
		Snapshot: func() observe.Snapshot {
			return observe.Snapshot{
				Instance: "one", Slot: f.config.Slot.Name, Phase: observe.Queries,
				Plugins: []embedders.State{{Plugin: "fake", Model: "m", Processes: func() []host.Process { return nil }}},
			}
		},
		Check: func(context.Context, *pgxpool.Pool) []check.Finding {
			f.checks.Add(1)
			return []check.Finding{{Name: "server", Status: check.OK, Detail: "password hunter2"}}
		},
		Reload: func(_ context.Context, by string, plugins []string) []control.Reloaded {
			return []control.Reloaded{{Plugin: strings.Join(plugins, ", "), Model: "m", Result: "reloaded by " + by}}
		},
		Embed: f.embed,
	})
	server, err := admin.Listen(f.t.Context(), service, o)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
	f.base = "http://" + server.Addr().String()
	service.Follow(f.pool)
	f.promised = f.promises()
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// problem is an error answer.
type problem struct {
	Title, Detail, Reason, Code string
	Status                      int
	Hints                       []string
}

// ask sends a request with the token of who; "" sends none. Header names and values follow the body.
func (f *fixture) ask(who, method, path, body string, header ...string) answer {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if who != "" {
		token, ok := f.tokens[who]
		if !ok {
			token = who
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return f.send(r)
}

func (f *fixture) send(r *http.Request) answer {
	f.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := answer{resp.StatusCode, resp.Header, string(content)}
	if a.status == http.StatusOK && a.header.Get("Content-Type") == "application/json" {
		if err := f.promised.broken(r, a.body); err != nil {
			f.t.Errorf("%s %s is not as the OpenAPI document says: %v", r.Method, r.URL, err)
		}
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		f.t.Errorf("%s %s may be stored: %q", r.Method, r.URL, got)
	}
	if a.status >= http.StatusBadRequest {
		var p problem
		if err := json.Unmarshal(content, &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" ||
			p.Status != a.status || p.Title == "" || p.Detail == "" || p.Reason == "" ||
			(p.Code == "ES0001") != (p.Reason == "internal") {
			f.t.Errorf("%s %s: no problem of RFC 9457: %s %q", r.Method, r.URL, a.header.Get("Content-Type"), content)
		}
	}
	return a
}

// gets decodes the answer to a request, which must have status 200.
func gets[T any](f *fixture, who, path string) (v T) {
	f.t.Helper()
	a := f.ask(who, http.MethodGet, path, "")
	return decoded[T](f, path, a)
}

func decoded[T any](f *fixture, what string, a answer) (v T) {
	f.t.Helper()
	if a.status != http.StatusOK {
		f.t.Fatalf("%s: %d %s", what, a.status, a.body)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(a.body)))
	if err := decoder.Decode(&v); err != nil {
		f.t.Fatalf("%s: %v: %s", what, err, a.body)
	}
	return v
}

// refused fails the test unless a request is rejected with this reason.
func (f *fixture) refused(status int, reason, who, method, path, body string, header ...string) {
	f.t.Helper()
	a := f.ask(who, method, path, body, header...)
	var p problem
	_ = json.Unmarshal([]byte(a.body), &p) // ask has checked it
	if a.status != status || p.Reason != reason {
		f.t.Errorf("%s %s %s %s: %d %s, want %d %s", who, method, path, body, a.status, a.body, status, reason)
	}
}

// reset puts tasks into an empty queue of each pipeline: dead letters 1 to 3, and 4, which is cancelled.
func (f *fixture) reset() {
	f.t.Helper()
	f.MustExec(`TRUNCATE embedsidecar.task, embedsidecar.lease, embedsidecar.audit_log, embedsidecar.scan, embedsidecar.ledger`)
	f.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true, lane = 1`)
	f.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
	f.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at, attempt,
		error_class, error_code, error_message)
		SELECT p.pipeline_id, i::text, CASE i WHEN 4 THEN 'cancelled' ELSE 'failed' END::embedsidecar.task_state, 1,
		       '3', '0/1', '0/1',
		       now() - interval '1 h', 8, 'data', 'c' || i % 2, 'refused: hunter2'
		FROM   embedsidecar.pipeline AS p, generate_series(1, 4) AS i ORDER BY 1, 2`)
}

// state returns the whole content of the database, except what the program reports about itself.
func (f *fixture) state() string {
	f.t.Helper()
	var all []string
	for _, table := range testenv.Values[string](f.Database, `SELECT c.oid::regclass::text FROM pg_class AS c
		WHERE c.relkind = 'r' AND c.relnamespace IN ('embedsidecar'::regnamespace, 'public'::regnamespace) ORDER BY 1`) {
		all = append(all, table+": "+testenv.Value[string](f.Database,
			"SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text COLLATE \"C\"), '') FROM "+table+" AS t"))
	}
	return strings.Join(all, "\n")
}

// waitFor limits every wait of a test.
const waitFor = 10 * time.Minute
