package database

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestTrust_WordsOfARowStayInIt: a message of a user's function, trigger or cast may contain row text, whatever its
// SQLSTATE.
func TestTrust_WordsOfARowStayInIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  pgconn.PgError
		kept bool
	}{
		"raised by a function": {pgconn.PgError{Code: "P0001", Where: "PL/pgSQL function public.f(text) line 1 at RAISE"}, false},
		"as a lock":            {pgconn.PgError{Code: "55P03", Where: "PL/pgSQL function f(text) line 1 at RAISE"}, false},
		"as an error of names": {pgconn.PgError{Code: "42883", Where: "PL/pgSQL function f(text) line 1 at RAISE"}, false},
		"called by ours": {pgconn.PgError{
			Code: "P0001", Where: "PL/pgSQL function f() line 1 at RAISE\nPL/pgSQL function embedsidecar.retry(text) line 1",
		}, false},
		"a cast":           {pgconn.PgError{Code: "22P02"}, false},
		"an error of ours": {pgconn.PgError{Code: "P0001", Where: "PL/pgSQL function embedsidecar.pause(text) line 1"}, true},
		"a tsquery":        {pgconn.PgError{Code: "42601", Routine: "makepol"}, false},
		"a word of one":    {pgconn.PgError{Code: "54000", Routine: "pushValue"}, false},
		"a statement":      {pgconn.PgError{Code: "42601", Position: 8}, true},
		"a name":           {pgconn.PgError{Code: "42P01"}, true},
		"a lock":           {pgconn.PgError{Code: "55P03"}, true},
	} {
		c.err.Message = "secret"
		for _, err := range []error{&c.err, fmt.Errorf("read: %w", errors.Join(errors.New("one"), &c.err))} {
			got := Words(err)
			if strings.Contains(got, "secret") != c.kept || !strings.Contains(got, c.err.Code) {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}
