package setup_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/database"
	"github.com/embedsidecar/embedsidecar/pipeline"
)

// newDB makes a database that is dropped after the test and returns its URL.
func newDB(t *testing.T, options string) string {
	t.Helper()
	base := os.Getenv("EMBEDSIDECAR_TEST_DSN")
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	name := fmt.Sprintf("t_%d", time.Now().UnixNano())
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0 "+options); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// base is a database with one table, and a pool on it as superuser.
type base struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
}

func newBase(t *testing.T, statements ...string) *base {
	t.Helper()
	b := &base{t: t, dsn: newDB(t, "")}
	b.pool = b.connect(b.dsn)
	b.exec("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
	b.pool.Reset()
	b.exec(statements...)
	return b
}

func (b *base) connect(dsn string) *pgxpool.Pool {
	b.t.Helper()
	pool, err := database.Connect(b.t.Context(), dsn, database.Options{MaxConns: 4})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

func (b *base) exec(statements ...string) {
	b.t.Helper()
	for _, sql := range statements {
		if _, err := b.pool.Exec(b.t.Context(), sql); err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// one reads one value as text.
func (b *base) one(sql string, args ...any) string {
	b.t.Helper()
	var s string
	if err := b.pool.QueryRow(b.t.Context(), "SELECT coalesce(format('%s', ("+sql+")), '')", args...).Scan(&s); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return s
}

// slot returns a name for a slot that is dropped after the test.
func (b *base) slot() string {
	b.t.Helper()
	name := fmt.Sprintf("s_%d", time.Now().UnixNano())
	b.t.Cleanup(func() {
		_, err := b.pool.Exec(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active", name)
		if err != nil {
			b.t.Error(err)
		}
	})
	return name
}

// docs is the pipeline that most tests begin with.
func docs() pipeline.Spec {
	return pipeline.Spec{Name: "docs", Schema: "public", Table: "docs", Columns: []string{"title", "body"}, IntoColumn: "embedding", Priority: pipeline.Normal, Enabled: true}
}

const makeDocs = "CREATE TABLE public.docs (id bigint PRIMARY KEY, title text, body text, n int, embedding public.vector(3))"

// wantError fails the test unless err is of type E and its text with its ways out holds every word.
func wantError[E interface {
	error
	Hints() []string
}](t *testing.T, err error, words ...string) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want %T", err, err, e)
	}
	text := err.Error() + "\n" + strings.Join(e.Hints(), "\n")
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("error lacks %q:\n%s", w, text)
		}
	}
	return e
}
