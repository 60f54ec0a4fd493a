package worker

import (
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestTrust_ATriggersWordsAreNotStored: they may be those of any column; the function and its line are told.
func TestTrust_ATriggersWordsAreNotStored(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	for where, want := range map[string]string{
		"PL/pgSQL function public.guard() line 3 at RAISE\nSQL statement \"a secret\"": "SQLSTATE P0001: raised by public.guard, line 3",
		"a secret": "SQLSTATE P0001",
	} {
		err := &pgconn.PgError{Code: pgerrcode.RaiseException, Message: `no vector for \u0061 secret`, Detail: "a secret", Where: where}
		if got := w.refusal(&item{}, err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := oneLine(" a\n b "+strings.Repeat("ü", 300), 5); got != "a b ü..." {
		t.Errorf("got %q", got)
	}
}
