package database_test

import (
	"io"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// newDB makes a database that is dropped after the test and returns its URL as superuser.
func newDB(t *testing.T) string {
	t.Helper()
	return testenv.DB(t, testenv.Empty()).URL(testenv.Superuser)
}

// asciiDB is newDB for a database that does not know what its bytes mean.
func asciiDB(t *testing.T) string {
	t.Helper()
	db := testenv.DB(t, testenv.Empty())
	name := db.Name + "_ascii"
	db.MustExecSuper("CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
	t.Cleanup(func() { db.MustExecSuper("DROP DATABASE " + pgx.Identifier{name}.Sanitize() + " WITH (FORCE)") })
	u, err := url.Parse(db.URL(testenv.Superuser))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func pipe(dst io.Writer, src io.Reader) { _, _ = io.Copy(dst, src) }
