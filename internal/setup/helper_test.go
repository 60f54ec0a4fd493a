package setup_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// base is a database and two pools as the sidecar makes them: of the owner, who has REPLICATION, and of the superuser.
type base struct {
	*testenv.Database
	t     *testing.T
	pool  *pgxpool.Pool
	super *pgxpool.Pool
}

// newBase makes a database without our schema and runs statements as its owner.
func newBase(t *testing.T, statements ...string) *base {
	t.Helper()
	return baseOn(t, testenv.DB(t, testenv.Empty()), statements...)
}

func baseOn(t *testing.T, db *testenv.Database, statements ...string) *base {
	t.Helper()
	b := &base{Database: db, t: t}
	b.pool, b.super = b.connect(testenv.Owner), b.connect(testenv.Superuser)
	for _, sql := range statements {
		b.MustExec(sql)
	}
	return b
}

// URL is the database's URL with a long connection timeout: these tests are not about machines that hang for a while.
func (b *base) URL(user string) string { return b.Database.URL(user) + "&connect_timeout=120" }

func (b *base) connect(user string) *pgxpool.Pool {
	b.t.Helper()
	var trusted []string
	if user == testenv.Superuser { // the owner's tables need --trust-owner
		trusted = []string{testenv.Owner}
	}
	pool, err := database.Connect(b.t.Context(), b.URL(user), database.Options{
		MaxConns: 4, IdleInTransaction: -1,
		TrustedOwners: trusted,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

// docs is the pipeline that most tests begin with.
func docs() pipeline.Spec {
	return pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"title", "body"},
		IntoColumn: "embedding", Priority: pipeline.Normal, Enabled: true,
	}
}

// waitFor limits every wait of a test.
const waitFor = 10 * time.Minute

const makeDocs = "CREATE TABLE public.docs (id bigint PRIMARY KEY, title text, body text, n int, embedding public.vector(3))"

// hinted is an error with hints.
type hinted interface {
	error
	Hints() []string
}

// wantError fails the test unless err is of type E and its text or hints contain every word.
func wantError[E hinted](t *testing.T, err error, words ...string) {
	t.Helper()
	_ = caught[E](t, err, words...)
}

// caught is wantError and returns the error.
func caught[E hinted](t *testing.T, err error, words ...string) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
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
