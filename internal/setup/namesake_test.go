package setup_test

import (
	"fmt"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_ATextLeavesNoRoomForANamesake: where an untrusted role may make functions, the calls in a text must have
// arguments of the exact parameter types. Otherwise another function of that name could be called instead. Functions of
// untrusted roles are always refused.
func TestTrust_ATextLeavesNoRoomForANamesake(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title varchar(100), body text, n int)",
		"CREATE SCHEMA tools", "CREATE SCHEMA safe",
		"CREATE FUNCTION tools.clean(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
		"CREATE FUNCTION safe.clean(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
		"CREATE FUNCTION tools.cut(text, bigint DEFAULT 9) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
		"CREATE FUNCTION tools.day(date) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '' $$",
		"CREATE FUNCTION tools.glue(VARIADIC text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1[1] $$",
		"CREATE FUNCTION tools.any(anyelement) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '' $$",
		"CREATE OPERATOR tools.+ (FUNCTION = tools.cut, LEFTARG = text, RIGHTARG = bigint)",
		"CREATE OPERATOR tools.|| (FUNCTION = pg_catalog.textcat, LEFTARG = text, RIGHTARG = text)", "CREATE SCHEMA signs",
		"CREATE OPERATOR signs.|| (FUNCTION = pg_catalog.textcat, LEFTARG = text, RIGHTARG = text)")
	name, _ := b.tenant()
	b.MustExecSuper("GRANT CREATE ON SCHEMA tools TO " + name)
	tryTo := func(text, filter string) error {
		spec := side()
		spec.Columns, spec.Text, spec.Filter = nil, text, filter
		o := b.options(b.SlotName(), spec)
		o.DryRun = true
		_, err := setup.Init(t.Context(), o)
		return err
	}
	for text, refused := range map[string]bool{
		"tools.clean(body)": false, "tools.clean(title::text)": false, "tools.clean('a {b} \\\\ text')": false,
		"tools.clean(lower(title))": false, "tools.cut(body, n::bigint)": false, "safe.clean(title)": false,
		"body OPERATOR(tools.+) 3::bigint || title": false, "concat_ws(' ', title, n)": false,
		"tools.clean(title)": true, "lower(tools.clean(title) || body)": true, "tools.cut(body)": true,
		"tools.cut(body, n)": true, "tools.cut(body, 3)": true, "tools.day('2026-01-01')": true,
		"tools.glue(body, body)": true, "tools.any(body)": true,
		"body OPERATOR(tools.+) n": true, "safe.clean(tools.clean(title))": true,
		"body OPERATOR(tools.||) body": false, "title OPERATOR(tools.||) body": true,
	} {
		if err := tryTo(text, ""); refused {
			wantError[*refusal.ConfigError](t, err, "tools", name, "title::text", "REVOKE CREATE ON SCHEMA tools",
				"--trust-owner")
		} else if err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	// The functions of a trusted extension belong to a superuser, whoever created the extension.
	b.MustExecSuper(fmt.Sprintf("GRANT CREATE ON DATABASE %q TO %[2]s; SET SESSION AUTHORIZATION %[2]s; "+
		"CREATE EXTENSION fuzzystrmatch SCHEMA tools; RESET SESSION AUTHORIZATION", b.Name, name))
	wantError[*refusal.ConfigError](t, tryTo("tools.soundex(body)", ""), "of extension fuzzystrmatch, whose owner", name,
		"--trust-owner")
	b.MustExecSuper("REVOKE CREATE ON SCHEMA tools FROM " + name)
	if err := tryTo("tools.soundex(body)", ""); err != nil {
		t.Errorf("an extension whose owner may make no functions beside it: %v", err)
	}
	b.MustExecSuper("GRANT CREATE ON SCHEMA tools TO " + name)
	may := fmt.Sprintf("TEMPORARY ON DATABASE %q ", b.Name)
	b.MustExecSuper("REVOKE " + may + "FROM PUBLIC, " + testenv.Owner)
	if err := tryTo("tools.clean(title)", ""); err != nil {
		t.Errorf("without the privilege TEMPORARY it is judged: %v", err)
	}
	b.MustExecSuper("GRANT " + may + "TO " + testenv.Owner)
	b.MustExecSuper("GRANT CREATE ON SCHEMA safe TO PUBLIC")
	wantError[*refusal.ConfigError](t, tryTo("body", "safe.clean(title) = 'x'"), "filter", "REVOKE CREATE ON SCHEMA safe FROM PUBLIC")
	// The owner of a schema may drop others' objects in it, and create new ones.
	b.MustExecSuper("REVOKE CREATE ON SCHEMA safe FROM PUBLIC; GRANT USAGE ON SCHEMA safe TO PUBLIC")
	b.MustExecSuper("ALTER SCHEMA safe OWNER TO " + name)
	wantError[*refusal.ConfigError](t, tryTo("safe.clean(body)", ""), "in schema safe, whose owner", name, "--trust-owner")
	b.MustExecSuper("GRANT USAGE ON SCHEMA signs TO PUBLIC; ALTER SCHEMA signs OWNER TO " + name)
	wantError[*refusal.ConfigError](t, tryTo("body OPERATOR(signs.||) body", ""), "in schema signs, whose owner", name,
		"--trust-owner")
	spec := side()
	spec.Columns, spec.Text = nil, "tools.clean(body)"
	o := b.options(b.SlotName(), spec)
	b.init(o)
	b.MustExecSuper("ALTER FUNCTION tools.clean OWNER TO " + name)
	wantError[*refusal.ConfigError](t, tryTo("tools.clean(body)", ""), "belongs to role "+name, "--trust-owner")
	if got := find(b.check(o), check.Wrong, "belongs to role "+name); len(got) == 0 {
		t.Errorf("check says nothing of it: %+v", b.check(o))
	}
	b.MustExecSuper("ALTER TABLE docs OWNER TO " + name + "; GRANT " + name + " TO " + testenv.Owner)
	if got, err := resolve.Load(t.Context(), b.pool, o.Slot); err != nil || got[0].Status != pipeline.Active {
		t.Errorf("a function of the table's owner: %v %+v", err, got)
	}
}
