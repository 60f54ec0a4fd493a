package database_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_APreparedTransactionHoldsTheQueue: the blocker is reported even if it has no session.
func TestP10_APreparedTransactionHoldsTheQueue(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(`CREATE TABLE pages (id int)`)
		gid := db.Name + " altered"
		db.MustExec(fmt.Sprintf(`BEGIN; ALTER TABLE pages ADD body text; LOCK embedsidecar.scan;
			PREPARE TRANSACTION '%s'`, gid))
		defer db.MustExec(fmt.Sprintf(`ROLLBACK PREPARED '%s'`, gid))

		got := testenv.Values[string](db, `SELECT gid FROM embedsidecar.queue_holders()`)
		if !slices.Equal(got, []string{gid}) {
			t.Errorf("the queue is held by %q, want %q", got, gid)
		}
	})
}
