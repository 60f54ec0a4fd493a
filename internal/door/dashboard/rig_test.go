package dashboard_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/dashboard"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// waitTimeout limits every wait, for slow machines.
const waitTimeout = 5 * time.Minute

const dims = 256

// poison is a word whose rows cannot be embedded.
const poison = "unreadable"

// words is an embedder whose vectors are near if the texts share words or beginnings of words.
type words struct{}

func (words) Describe(context.Context) (embed.Description, error) {
	return embed.Description{
		Plugin: "words", Model: "shared-words", Fingerprint: "words-1", Dims: dims, Deterministic: true,
	}, nil
}

func (words) Embed(_ context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	results := make([]embed.Result, len(texts))
	for i, text := range texts {
		if strings.Contains(text, poison) {
			results[i].Err = &embed.TextError{
				Class: embed.Data, Code: "malformed_text", Message: "byte 17 is no part of any token",
			}
			continue
		}
		results[i].Vector = vectorOf(text)
	}
	return results, nil
}

func vectorOf(text string) []float32 {
	v := make([]float32, dims)
	sum := 0.0
	add := func(word string, weight float32) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(word))
		v[h.Sum32()%dims] += weight
	}
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' }) {
		if len(word) > 3 {
			add(word, 1)
			add(word[:4], 2)
		}
	}
	add("", 0.1)
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(sum))
	}
	return v
}

// rig is a database with pipelines, a sidecar, and a dashboard.
type rig struct {
	t         *testing.T
	db        *testenv.Database
	slot      string
	run       string // the worker's role
	person    string // a role with the same rights that may also act
	pipelines []pipeline.Pipeline
	tokens    string // the file of tokens
	retry     time.Duration
	down      atomic.Bool   // the embedder fails
	slow      time.Duration // duration of each call
	batch     int           // maximum number of rows per call; 0: the default
	asked     atomic.Int32  // number of embedded queries
	tracer    pgx.QueryTracer
}

const tables = `CREATE TABLE articles (id bigint PRIMARY KEY, title text NOT NULL, body text);
CREATE TABLE products (sku text PRIMARY KEY, name text NOT NULL, description text);
CREATE TABLE tickets (id bigint PRIMARY KEY, subject text NOT NULL, message text)`

// newRig sets up pipelines as the tables' owner, with the grants of sql/roles.sql.
func newRig(t *testing.T) *rig {
	t.Helper()
	db := testenv.DB(t, testenv.Empty())
	for statement := range strings.SplitSeq(tables, ";\n") {
		db.MustExec(statement)
	}
	r := &rig{t: t, db: db, slot: db.SlotName()}
	r.fill()
	specs := []pipeline.Spec{
		{Name: "public.articles", Table: "articles", Columns: []string{"title", "body"}, IntoColumn: "embedding"},
		{
			Name: "public.products", Table: "products", Columns: []string{"name", "description"},
			IntoTable: "products_embedding",
		},
		{
			Name: "public.tickets", Table: "tickets", Columns: []string{"subject", "message"},
			IntoTable: "tickets_embedding", Filter: "subject <> 'spam'",
		},
	}
	described := map[string]embed.Description{}
	for i := range specs {
		s := &specs[i]
		s.Schema, s.Plugin, s.Model, s.Enabled, s.Priority = "public", "words", "shared-words", true, pipeline.Normal
		described[s.Name], _ = words{}.Describe(t.Context())
	}
	owner := db.URL(testenv.Owner)
	done, err := setup.Init(t.Context(), setup.Options{
		Pool: r.pool(owner, 4), ReplicationDSN: owner + "&connect_timeout=120", Slot: r.slot, Publication: db.Name + "_pub",
		Specs: specs, Descriptions: described, Log: slog.New(slog.DiscardHandler),
		SlotTimeout: waitTimeout, LockTimeout: waitTimeout,
	})
	if err != nil {
		t.Fatalf("init: %v", err)
	}
	r.pipelines = done.Pipelines
	r.run = db.RunRole(r.pipelines...)
	_, operator := db.SQLRoles()
	r.person = db.Role("")
	db.MustExecSuper("GRANT " + r.run + ", " + operator + " TO " + r.person)
	r.token("vera", gate.RoleViewer)
	r.token("olga", gate.RoleOperator)
	r.token("ada", gate.RoleAdmin)
	return r
}

// token adds a token that equals its name.
func (r *rig) token(name, role string) {
	r.t.Helper()
	if r.tokens == "" {
		r.tokens = filepath.Join(r.t.TempDir(), "tokens")
	}
	known, err := os.ReadFile(r.tokens)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	line := fmt.Sprintf("%s:%s:%x\n", name, role, sha256.Sum256([]byte(name)))
	if err := os.WriteFile(r.tokens, append(known, line...), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) fill() {
	for i, title := range []string{
		"Reset a forgotten password", "Change the email address of your account", "Invite a colleague to your workspace",
		"Export invoices as PDF", "Why is my payment declined?", "Set up single sign-on with your provider",
		"Rotate an API key without downtime", "Limits of the free plan", "Restore a deleted project",
		"Connect a custom domain", "Two-factor authentication with a security key", "Delete your account and data",
		"Webhooks: retries and signatures", "Move a project between regions", "Notifications by email and chat",
		"Keyboard shortcuts", "Search operators", "Share a read-only link", "Audit log of your organisation",
		"Import rows from a CSV file", "Schedule a nightly export", "Roles and permissions", "Billing address and tax number",
		"Status of our services",
	} {
		r.db.MustExec("INSERT INTO articles VALUES ($1, $2, $3)", i+1, title,
			"How to: "+strings.ToLower(title)+". Open the settings, and follow the steps. This concerns your account.")
	}
	for i, name := range []string{
		"Walnut desk, 140 cm", "Linen chair", "Reading lamp, brass", "Wool rug, grey", "Oak shelf, five boards",
		"Cotton curtain",
		"Stoneware mug", "Cast iron pan", "Maple cutting board", "Paper lantern",
	} {
		r.db.MustExec("INSERT INTO products VALUES ($1, $2, $3)", fmt.Sprintf("SKU-%03d", i+1), name, "Made to last: "+name)
	}
	for i := range 30 {
		message := "I cannot sign in since this morning, please reset my password"
		if i%10 == 7 {
			message = "attachment " + poison
		}
		subject := []string{"Sign in", "Invoice", "spam"}[i%3]
		r.db.MustExec("INSERT INTO tickets VALUES ($1, $2, $3)", 1000+i, subject, fmt.Sprint(message, " ", i))
	}
}

func (r *rig) pool(url string, conns int32) *pgxpool.Pool {
	r.t.Helper()
	pool, err := database.Connect(r.t.Context(), url+"&connect_timeout=120", database.Options{
		MaxConns: conns, IdleInTransaction: -1, Log: slog.New(slog.DiscardHandler), TrustedOwners: []string{testenv.Owner},
	})
	if err == nil && r.tracer != nil {
		config := pool.Config()
		config.ConnConfig.Tracer = r.tracer
		pool.Close()
		pool, err = pgxpool.NewWithConfig(r.t.Context(), config)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(pool.Close)
	return pool
}

// work runs a sidecar until the test ends, and waits until the queue is empty.
func (r *rig) work() (stop func()) {
	r.t.Helper()
	stop = r.begin()
	r.settle()
	return stop
}

// failing is an embedder that may be unavailable.
type failing struct {
	words
	down *atomic.Bool
	slow time.Duration
}

func (f failing) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	if f.down.Load() {
		return nil, &embed.Error{Class: embed.Transient, Code: "provider_down", Err: errors.New("nobody answers")}
	}
	if !sleep.For(ctx, f.slow) {
		return nil, ctx.Err()
	}
	return f.words.Embed(ctx, kind, texts)
}

// begin runs a sidecar until the test ends.
func (r *rig) begin() (stop func()) {
	r.t.Helper()
	retry := cmp.Or(r.retry, time.Millisecond)
	at := r.db.URL(r.run)
	pool, direct := r.pool(at, 8), r.pool(at, 3)
	s := sidecar.New(sidecar.Options{
		Slot: r.slot, Instance: "docs-1", Version: "1.0.0", Pool: pool, StreamPool: direct,
		Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context) (*pgconn.PgConn, error) {
			return database.ConnectReplication(ctx, r.db.URL(r.db.StreamRole()), database.Options{IdleInTransaction: -1})
		},
		Load: func(ctx context.Context) ([]pipeline.Pipeline, error) { return resolve.Load(ctx, pool, r.slot) },
		Embedder: func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) {
			return failing{down: &r.down, slow: r.slow}, nil
		},
		Heartbeat: time.Second,
		Work: worker.Work{
			Retry: worker.Retry{Initial: retry, Max: retry, MaxAttempts: 2}, Lease: time.Hour, BatchRows: r.batch,
		},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("sidecar: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// settle waits until everything committed so far is processed.
func (r *rig) settle() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	lsn, err := report.Now(ctx, r.db.Pool)
	if err != nil {
		r.t.Fatal(err)
	}
	if state, err := report.Wait(ctx, r.db.Super(), r.slot, lsn); err != nil {
		r.t.Fatalf("not caught up: %+v: %v", state, err)
	}
}

// options change a dashboard.
type options struct {
	readOnly, texts bool
	base            string
}

// serve runs a dashboard with a database role until the test ends or the returned function is called.
func (r *rig) serve(role string, o options) (address string, end func()) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	c := config.Default()
	c.Admin.ReadOnly, c.Admin.ShowRowText, c.Admin.BasePath = o.readOnly, o.texts, o.base
	service := admin.NewService(admin.ServiceOptions{
		Config: c, Redact: c.Redactor().Text, Snapshot: snapshot, Check: checks, Log: log,
		Registered: registered, Folders: folders,
		Embed: func(_ context.Context, _ *pipeline.Pipeline, text string) ([]float32, error) {
			r.asked.Add(1)
			return vectorOf(text), nil
		},
	})
	service.Follow(r.pool(r.db.URL(role), 4))
	pages := dashboard.New(dashboard.Options{Service: service, Log: log, Version: "1.0.0", Base: o.base})
	tokens, err := gate.ReadTokens(r.tokens, log)
	if err != nil {
		r.t.Fatal(err)
	}
	server, err := admin.Listen(r.t.Context(), service, gate.Options{
		Listen: "127.0.0.1:0", Tokens: tokens, Pages: pages, Log: log,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("dashboard: %v", err)
		}
	})
	r.t.Cleanup(end)
	return "http://" + server.Addr().String(), end
}

func snapshot() observe.Snapshot {
	return observe.Snapshot{Instance: "docs-1", Version: "1.0.0", Pid: 1}
}

func checks(context.Context, *pgxpool.Pool) []check.Finding {
	return []check.Finding{
		{Name: "wal_level", Status: check.OK, Detail: "logical"},
		{
			Name: "max_slot_wal_keep_size", Status: check.Warn, Detail: "no limit: an unread slot can fill the disk",
			Hint: []string{"ALTER SYSTEM SET max_slot_wal_keep_size = '10GB';"},
		},
		{Name: "pipeline public.articles", Status: check.OK, Detail: "fits its table"},
		{Name: "embedder words", Status: check.OK, Detail: "shared-words, 256 wide"},
	}
}

func registered(context.Context) ([]registry.Known, error) {
	return []registry.Known{{
		Plugin: "words", Version: "1.0.0", Pinned: "catalogue", SHA256: strings.Repeat("4c1f", 16), State: "ok", Running: 1,
		Circuit: "closed", Path: "/usr/lib/embedsidecar/plugins/embedsidecar-words",
	}}, nil
}

func folders() []models.Info {
	return []models.Info{{
		Name: "shared-words", Type: "bert", Tokenizer: "WordPiece", Dims: dims, Bytes: 90 << 20,
		SHA256: strings.Repeat("9ab0", 16),
	}}
}

// browser is a signed-in HTTP client.
type browser struct {
	t    *testing.T
	at   string
	http *http.Client
}

func (r *rig) signIn(address, token string) *browser {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	b := &browser{t: r.t, at: address, http: &http.Client{Jar: jar}}
	r.t.Cleanup(b.http.CloseIdleConnections)
	if token != "" {
		b.post(http.StatusOK, "/login", "token", token)
	}
	return b
}

// get fetches a page and checks its status.
func (b *browser) get(status int, path string) string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.at+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	page, _ := b.send(status, req)
	return page
}

// post submits a form of names and values.
func (b *browser) post(status int, path string, pairs ...string) string {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.at+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Origin", b.at)
	page, _ := b.send(status, req)
	return page
}

// wrapped matches a line break in a template, which a browser shows as a space.
var wrapped = regexp.MustCompile(`\n +`)

func (b *browser) send(status int, req *http.Request) (page string, header http.Header) {
	b.t.Helper()
	answer, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if answer.StatusCode != status {
		b.t.Fatalf("%s %s: status %d, want %d\n%s", req.Method, req.URL.Path, answer.StatusCode, status, body)
	}
	return wrapped.ReplaceAllString(string(body), " "), answer.Header
}
