package sidecar_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_TheAuditIsInTheLog: who acts by SQL reaches the table perhaps, and not the log.
func TestTrust_TheAuditIsInTheLog(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	log := &recorder{}
	r.options = func(o *sidecar.Options) { o.Log = log.logger() }
	r.start()
	db.MustExec(`SELECT embedsidecar.requeue('docs', '{secret key}', said_by => 'Jo')`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := log.text()
		return strings.Contains(said, "msg=audit") && strings.Contains(said, "said_by=Jo") &&
			strings.Contains(said, "action=requeue") && strings.Contains(said, "changed=1"), said
	})
	if said := log.text(); strings.Contains(said, "secret key") {
		t.Error("the log has a key")
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // the end of the backfill has an entry, too
		return r.count(`SELECT count(*) FROM embedsidecar.audit_log WHERE NOT told`) == 0, "an entry is still to be told of"
	})
}
