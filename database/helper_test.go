package database_test

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

func portOf(c *pgconn.Config) string { return fmt.Sprint(c.Port) }

func pipe(dst io.Writer, src io.Reader) { _, _ = io.Copy(dst, src) }
