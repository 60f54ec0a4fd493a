package database

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Stranger is something among our objects that a role without our trust made or may change.
type Stranger struct {
	Thing   string // with its kind: schema embedsidecar
	Problem string
	Owner   string // the role that could use it; "" when it is not about a role
}

func (s Stranger) String() string {
	if s.Owner == "" {
		return s.Thing + " " + s.Problem
	}
	return fmt.Sprintf("%s %s role %q", s.Thing, s.Problem, s.Owner)
}

// trustedKey is the CustomData key of the roles that a connection's user trusts.
const trustedKey = "embedsidecar.trusted"

// Trusted returns the roles that the user of a connection trusts explicitly.
func Trusted(conn *pgx.Conn) []string {
	names, _ := conn.PgConn().CustomData()[trustedKey].([]string)
	return append([]string{}, names...)
}

// Strangers looks for objects that must not be touched: in the schema embedsidecar and among the given tables. It reads
// only the catalog.
func Strangers(ctx context.Context, conn *pgx.Conn, tables ...uint32) ([]Stranger, error) {
	args := pgx.StrictNamedArgs{"trusted": Trusted(conn), "tables": append([]uint32{}, tables...)}
	found, err := Collect(ctx, conn, "strangers", pgx.RowToStructByName[Stranger], args)
	return found, wrap.Errorf(err, "look for objects of untrusted roles")
}

// InWords joins the strangers' objects into one text, and returns the roles that could use them.
func InWords(found []Stranger) (text string, owners []string) {
	for _, s := range found {
		if s.Owner != "" {
			owners = lists.Add(owners, s.Owner)
		}
	}
	return strings.Join(lists.Map(found, Stranger.String), "; "), owners
}

// trust refuses a database in which a stranger made or may change the schema embedsidecar: a view in place of a table,
// or a trigger, would run with our role's privileges.
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
			"it is not safe for role %q to use the schema embedsidecar of this database: %s", role, text),
		Hint: trustHint(role, owners, major), Trust: owners,
	}
}

// maskedBy is the role that a session runs as though no setting of its own role, or of all roles, says so: then the
// database's owner may have set it (ALTER DATABASE ... SET role), and have taken it back since the session began. It is
// NULL if there is none, or if that role has all the privileges of the session.
const maskedBy = `(SELECT r.rolname::text
	FROM pg_catalog.pg_roles AS r
	WHERE r.rolname = current_user AND current_user <> session_user AND NOT r.rolsuper
		AND NOT pg_catalog.pg_has_role(r.oid, session_user, CASE
			WHEN pg_catalog.current_setting('server_version_num')::integer < 160000
			THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting AS s
				CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (setting)
				LEFT JOIN pg_catalog.pg_roles AS u ON u.oid = s.setrole
				LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
			WHERE c.setting = 'role=' || r.rolname::text
				AND CASE s.setdatabase WHEN 0 THEN s.setrole = 0 OR u.rolname = session_user
					ELSE d.datname = pg_catalog.current_database() AND u.rolname = session_user END))`

// unmasked refuses a session that runs as a role that its user does not trust, and did not ask for: that role's objects
// would count as the session's own, and its code can get back the privileges of the login role.
func unmasked(conn *pgx.Conn, role string) error {
	own := conn.Config().RuntimeParams
	asked := own["role"] == role
	for word := range strings.FieldsSeq(own["options"]) { // not a part of another setting or name
		asked = asked || slices.Contains([]string{"role=" + role, "-crole=" + role, "--role=" + role}, word)
	}
	if role == "" || asked || slices.Contains(Trusted(conn), role) {
		return nil
	}
	user := conn.Config().User
	return &Error{
		Kind: Untrusted, Err: fmt.Errorf(
			"sessions of role %q run as %q in this database, which its owner may set, and functions of %[2]q could use all "+
				"privileges of %[1]q", user, role),
		Hint: []string{
			"connect as " + role + ", or undo it: ALTER DATABASE " + Quote(conn.Config().Database) + " RESET role;",
			TrustOwners(user, role),
		},
		Trust: []string{role},
	}
}

// looks shares one trust check between the connections of a pool: a pool opens many, and planning the check costs each
// more than the rest of its setup.
type looks struct {
	turn  chan struct{} // holds one element while no check runs
	until time.Time     // the last check without a finding is valid until then
}

// Shareable is how long a check without a finding stays valid. If the schema does not exist yet, any role with CREATE
// on this database can make it at any moment. If it exists, only roles that could already do so can add to it.
const (
	Shareable      = 10 * time.Second
	shareableEmpty = time.Second
)

func newLooks() *looks {
	l := &looks{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// trust is the shared version of the function trust.
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
	if there, err := conn.Exec(ctx, query); err != nil { // before the check, which then includes it
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

// TrustOwners is the hint to let a role use objects of the given owners.
func TrustOwners(role string, owners ...string) string {
	return fmt.Sprintf("or trust %s with all privileges of %q: --trust-owner %s (EMBEDSIDECAR_TRUST_OWNER)",
		strings.Join(owners, " and "), role, strings.Join(owners, ","))
}

// trustHint lists what to do about objects of owners that a role does not trust. From PostgreSQL 16 on, membership may
// lack the SET option, and a GRANT that does not name the option leaves it unchanged.
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
