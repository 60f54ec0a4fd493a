package testenv_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestCopy_FollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	closed := func(s *testenv.Server) {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	primary, err := testenv.Start(t.Context(), testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closed(primary)
	db := testenv.DB(t, testenv.On(primary))
	db.MustExec(`CREATE TABLE rows (n int)`)
	if _, err := primary.Copy(t.Context()); err == nil {
		t.Error("a running server was copied")
	}
	if err := primary.Stop(testenv.Fast); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Copy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed(standby)
	if err := standby.Follow(primary, "second", ""); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*testenv.Server{primary, standby} {
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db.Pool.Reset()
	db.MustExec(`INSERT INTO rows VALUES (1)`)
	conn, err := pgx.Connect(t.Context(), standby.URL(db.Name, testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	testenv.Eventually(t, waitLimit, func() (bool, string) {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM rows`).Scan(&n)
		return n == 1, fmt.Sprintf("%d rows on the standby, %v", n, err)
	})
	if _, err := conn.Exec(t.Context(), `INSERT INTO rows VALUES (2)`); err == nil {
		t.Error("the standby takes writes")
	}
	if err := primary.Stop(testenv.Killed); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `INSERT INTO rows VALUES (2)`); err != nil {
		t.Errorf("after the promotion: %v", err)
	}
}
