package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP6_TriggersThatUndoEveryWriteBack: each write-back would ask for the next, and that would go on for ever.
func TestP6_TriggersThatUndoEveryWriteBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		trigger string // its body
		when    string
		words   string
	}{
		"the vector is taken away": {
			when: `BEFORE UPDATE`, trigger: `IF new.id > 40 THEN new.embedding := NULL; END IF; RETURN new;`,
			words: "put something else in place of the vector",
		},
		"the text changes": {
			when: `BEFORE UPDATE`, trigger: `IF new.id > 40 THEN new.body := old.body || '.'; END IF; RETURN new;`,
			words: "UPDATE OF",
		},
		"the text changes afterwards": {
			when:    `AFTER UPDATE OF embedding`,
			trigger: `IF new.id > 40 THEN UPDATE docs SET body = body || '.' WHERE id = new.id; END IF; RETURN NULL;`,
			words:   "UPDATE OF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(8))`)
			db.MustExec(`CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN ` + test.trigger +
				` END $$`)
			db.MustExec(`CREATE TRIGGER undo ` + test.when + ` ON docs FOR EACH ROW EXECUTE FUNCTION undo()`)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 43) AS i`)
			r := newRig(t, db, column("docs", "body"))
			r.options = quick
			r.start()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				got := testenv.Values[string](db,
					`SELECT row_key || ' ' || state || ' ' || coalesce(error_message, '') FROM embedsidecar.task WHERE state = 'failed' ORDER BY row_key`)
				return len(got) == 3, fmt.Sprintf("dead letters: %q", got)
			})
			r.settle()
			for _, message := range testenv.Values[string](db,
				`SELECT error_code || ' ' || error_message FROM embedsidecar.task ORDER BY row_key`) {
				if !strings.HasPrefix(message, "write_refused") || !strings.Contains(message, test.words) ||
					strings.Contains(message, "body") {
					t.Errorf("a dead letter says %q", message)
				}
			}
			if n := r.count(`SELECT count(embedding) FROM docs WHERE id <= 40`); n != 40 {
				t.Errorf("%d of the other rows have a vector, want 40", n)
			}
			db.MustExec(`DROP TRIGGER undo ON docs`)
			db.MustExec(`UPDATE docs SET body = 'free ' || id WHERE id > 40`)
			r.settle()
			r.verify()
		})
	}
}
