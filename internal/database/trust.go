package database

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Stranger is a thing among our objects that somebody made, or may change, whom a session has no reason to trust.
type Stranger struct {
	Thing   string // with its kind: schema embedsidecar
	Problem string
	Owner   string // who could use it; "" when it is not about a role
}

func (s Stranger) String() string {
	if s.Owner == "" {
		return s.Thing + " " + s.Problem
	}
	return fmt.Sprintf("%s %s role %q", s.Thing, s.Problem, s.Owner)
}

// trustedKey is where a connection keeps the names of the roles that its user trusts.
const trustedKey = "embedsidecar.trusted"

// Trusted returns the roles that the user of a connection has named as trusted.
func Trusted(conn *pgx.Conn) []string {
	names, _ := conn.PgConn().CustomData()[trustedKey].([]string)
	return append([]string{}, names...)
}

// Strangers looks for things that are not to be touched: in the schema embedsidecar and, beside it, among some tables.
// It reads nothing but the catalogue.
func Strangers(ctx context.Context, conn *pgx.Conn, tables ...uint32) ([]Stranger, error) {
	args := pgx.StrictNamedArgs{"trusted": Trusted(conn), "tables": append([]uint32{}, tables...)}
	found, err := Collect(ctx, conn, "strangers", pgx.RowToStructByName[Stranger], args)
	return found, wrap.Errorf(err, "look for objects of strangers")
}

// InWords names strangers' things in one text, and the roles that could use them.
func InWords(found []Stranger) (text string, owners []string) {
	texts := make([]string, len(found))
	for i, s := range found {
		texts[i] = s.String()
		if s.Owner != "" && !slices.Contains(owners, s.Owner) {
			owners = append(owners, s.Owner)
		}
	}
	return strings.Join(texts, "; "), owners
}

// trust refuses a database whose schema embedsidecar a stranger has made or may change: a view in the place of a
// table, or a trigger, would run with the rights of our role.
func trust(ctx context.Context, conn *pgx.Conn) error {
	found, err := Strangers(ctx, conn)
	if err != nil || len(found) == 0 {
		return err
	}
	text, owners := InWords(found)
	role := conn.Config().User
	major, err := majorOf(conn.PgConn())
	if err != nil {
		return err
	}
	return &Error{
		Kind: Untrusted, Err: fmt.Errorf(
			"it is not safe for role %q to use what is in the schema embedsidecar of this database: %s", role, text),
		Hint: trustHint(role, owners, major), Trust: owners,
	}
}

// maskedBy is the role that a session works as because the owner of the database wants it so (ALTER DATABASE ... SET
// role), or NULL, also where that role could do all that the session can.
const maskedBy = `CASE WHEN current_user <> session_user THEN (SELECT r.rolname::text
	FROM pg_catalog.pg_db_role_setting AS s JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
		CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (setting)
		JOIN pg_catalog.pg_roles AS r ON r.rolname = current_user
	WHERE s.setrole = 0 AND d.datname = pg_catalog.current_database() AND c.setting LIKE 'role=%' AND NOT r.rolsuper
		AND NOT pg_catalog.pg_has_role(r.oid, session_user, CASE
			WHEN pg_catalog.current_setting('server_version_num')::integer < 160000
			THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)) END`

// unmasked refuses a session that is masked as a role that its user does not trust: what belongs to that role would
// count as the session's own, and its code can take back the rights of the role that logged in.
func unmasked(conn *pgx.Conn, role string) error {
	if role == "" || slices.Contains(Trusted(conn), role) {
		return nil
	}
	user := conn.Config().User
	return &Error{
		Kind: Untrusted, Err: fmt.Errorf(
			"sessions of role %q work as %q in this database, as its owner wants it, and functions of %[2]q could use all "+
				"privileges of %[1]q", user, role),
		Hint: []string{
			"connect as " + role + ", or undo it: ALTER DATABASE " + Quote(conn.Config().Database) + " RESET role;",
			TrustOwners(user, role),
		},
		Trust: []string{role},
	}
}

// looks has the connections of a pool share a look: a pool opens many, and planning the look costs each more than the
// rest of its beginning.
type looks struct {
	turn  chan struct{} // holds one element while nobody looks
	until time.Time     // the last look that found nothing stands for others until then
}

// Shareable is for how long a look that found nothing stands for others. A schema that is not there yet, anybody may
// make who can make one in this database; into one that is there, nobody brings a thing who could not have done so
// before.
const (
	Shareable      = 10 * time.Second
	shareableEmpty = time.Second
)

func newLooks() *looks {
	l := &looks{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// trust is the function of that name, for one connection of many.
func (l *looks) trust(ctx context.Context, conn *pgx.Conn) error {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { l.turn <- struct{}{} }()
	begun, share := time.Now(), shareableEmpty
	if begun.Before(l.until) {
		return nil
	}
	const query = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'embedsidecar'"
	if there, err := conn.Exec(ctx, query); err != nil { // before the look, which then includes it
		return err
	} else if there.RowsAffected() > 0 {
		share = Shareable
	}
	if err := trust(ctx, conn); err != nil {
		return err
	}
	l.until = begun.Add(share)
	return nil
}

// TrustOwners tells how to say that a role may be used by the owners of what it meets.
func TrustOwners(role string, owners ...string) string {
	return fmt.Sprintf("or trust %s with all privileges of %q: --trust-owner %s (EMBEDSIDECAR_TRUST_OWNER)",
		strings.Join(owners, " and "), role, strings.Join(owners, ","))
}

// trustHint tells what to do about objects of owners that a role does not trust. From PostgreSQL 16 on, a member may
// lack the right to act as the role, which a GRANT that does not name it leaves as it is.
func trustHint(role string, owners []string, major int) []string {
	if len(owners) == 0 {
		return []string{"ask its owner to remove it; embedsidecar creates no such objects"}
	}
	hint := []string{
		fmt.Sprintf("connect as %s, or as the role that embedsidecar roles makes for running", strings.Join(owners, " or ")),
		TrustOwners(role, owners...),
	}
	for _, owner := range owners {
		hint = append(hint, fmt.Sprintf("or, if %s may act as %q: GRANT %s TO %s%s;", owner, role, Quote(role), Quote(owner),
			map[bool]string{true: " WITH SET TRUE"}[major >= 16]))
	}
	return append(hint, "if it is not used, its owner may drop it with everything in it: DROP SCHEMA embedsidecar CASCADE;")
}
