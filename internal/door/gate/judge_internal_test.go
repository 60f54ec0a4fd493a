package gate

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestTrust_WordsOfUsersFunctionsAreNotTold: a function of a text, a policy or an index may raise any text of a row,
// under any code.
func TestTrust_WordsOfUsersFunctionsAreNotTold(t *testing.T) {
	t.Parallel()
	const (
		raise  = "exec_stmt_raise"
		users  = "PL/pgSQL function public.secrets() line 2 at RAISE"
		ours   = "PL/pgSQL function embedsidecar.requeue(text,text[]) line 9 at RAISE"
		german = "PL/pgSQL-Funktion embedsidecar.requeue(text,text[]) Zeile 9 bei RAISE"
	)
	for _, c := range []struct {
		name, code, routine, where string
		told                       bool
	}{
		{"of ours", "22023", raise, ours, true},
		{"of ours, within a function in SQL", "22023", raise, ours + "\nSQL function \"tasks\" statement 1", true},
		{"of ours, in another language", "22023", raise, german, true},
		{"of a user's", "22023", raise, users, false},
		{"of a user's, about a privilege", "42501", raise, users, false},
		{"of a user's, within ours", "22023", raise, users + "\n" + ours, false},
		{"of the server, about a privilege", "42501", "aclcheck_error", "", true},
		{"of the server, about a value", "22P02", "pg_strtoint32_safe", "", false},
		{"of the server, about the syntax of a value", "42601", "makepol", "", false},
	} {
		judge := &Judge{Inside: true, Log: slog.New(slog.DiscardHandler)}
		p := judge.Problem(t.Context(), &pgconn.PgError{
			Code: c.code, Routine: c.routine, Where: c.where, Message: "a secret", Hint: "a secret hint",
		})
		told := p.Detail + strings.Join(p.Hints, " ")
		if strings.Contains(told, "secret hint") != c.told || strings.Contains(p.Detail, "a secret") != c.told {
			t.Errorf("%s: %d %s", c.name, p.Status, told)
		}
	}
}
