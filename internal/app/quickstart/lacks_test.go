package quickstart

import (
	"slices"
	"testing"
)

// TestTrust_ANameAddsNoStatement: of what a superuser is asked to paste, nothing is made up by the name of a table.
func TestTrust_ANameAddsNoStatement(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hint  string
		words string
		sql   []string
	}{
		"a statement":  {`GRANT SELECT ON "a" TO "b";`, "", []string{`GRANT SELECT ON "a" TO "b";`}},
		"behind words": {"as superuser: ALTER ROLE a REPLICATION;", "", []string{"ALTER ROLE a REPLICATION;"}},
		"two, and a note": {"raise it: ALTER SYSTEM SET a = 1; ALTER SYSTEM SET b = 2; (restart)", "(restart)", []string{
			"ALTER SYSTEM SET a = 1;", "ALTER SYSTEM SET b = 2;",
		}},
		"a template":    {"GRANT a TO ...; (RDS)", "GRANT a TO ...; (RDS)", nil},
		"another way":   {`or GRANT a TO "b";`, `or GRANT a TO "b";`, nil},
		"nothing to do": {"look at it", "look at it", nil},
		"a statement in a name": {`GRANT SELECT ON "x...: GRANT root TO mallory; " TO "b";`, "", []string{
			`GRANT SELECT ON "x...: GRANT root TO mallory; " TO "b";`,
		}},
		"a statement in a name, between words": {
			`name another than "x: GRANT root TO mallory; "`, `name another than "x: GRANT root TO mallory; "`, nil,
		},
		"a semicolon": {`it may not: GRANT a ON SCHEMA "x; ALTER ROLE mallory SUPERUSER; " TO "b";`, "", []string{
			`GRANT a ON SCHEMA "x; ALTER ROLE mallory SUPERUSER; " TO "b";`,
		}},
	} {
		if words, sql := apart(test.hint); words != test.words || !slices.Equal(sql, test.sql) {
			t.Errorf("%s: %q, %q", name, words, sql)
		}
	}
}
