// Package roles writes and runs the SQL for the two roles that a sidecar needs, for work and for the stream, and for
// the roles of users who monitor, operate and search by SQL.
package roles

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Roles are the names of the roles.
type Roles struct{ Run, Stream, Reader, Operator, Searcher string }

// Named fills in the default names. It refuses names that a script cannot contain.
func Named(r Roles) (Roles, error) {
	r = Roles{
		cmp.Or(r.Run, sqlfiles.RunRole), cmp.Or(r.Stream, sqlfiles.StreamRole), cmp.Or(r.Reader, sqlfiles.ReaderRole),
		cmp.Or(r.Operator, sqlfiles.OperatorRole), cmp.Or(r.Searcher, sqlfiles.SearcherRole),
	}
	for _, name := range []string{r.Run, r.Stream, r.Reader, r.Operator, r.Searcher} {
		if strings.ContainsAny(name, "\x00\r\n") || strings.Contains(name, "$embedsidecar$") {
			return r, problem.New(problem.Usage, fmt.Errorf("%q cannot be the name of a role in a script", name))
		}
	}
	return r, nil
}

// Script creates the roles. It is idempotent.
func (r Roles) Script() string {
	return sqlfiles.Roles(r.Run, r.Stream, r.Reader, r.Operator, r.Searcher)
}

// Running returns the role that a sidecar works as: that of a running one, else the default role if it exists, else the
// caller.
func Running(ctx context.Context, pool *pgxpool.Pool) (role string, err error) {
	err = pool.QueryRow(ctx, sqlfiles.Query("running_role"), pgx.StrictNamedArgs{"usual": sqlfiles.RunRole}).Scan(&role)
	return role, wrap.Errorf(refusal.NotSetUp(err), "look up the role that runs")
}

// given returns *ConfigError if an untrusted role has the ADMIN OPTION of one of the roles: since the default names are
// known, anyone with CREATEROLE may have created it first.
func (r Roles) given(ctx context.Context, pool *pgxpool.Pool) error {
	type giver struct{ Role, Giver string }
	var found []giver
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
		found, err = database.Collect(ctx, conn, "role_givers", pgx.RowToStructByName[giver], pgx.StrictNamedArgs{
			"roles":   []string{r.Run, r.Stream, r.Reader, r.Operator, r.Searcher},
			"trusted": database.Trusted(conn.Conn()),
		})
		return err
	})
	if err != nil || len(found) == 0 {
		return wrap.Errorf(err, "look up who may give the roles to others")
	}
	role, who := found[0].Role, found[0].Giver
	return &refusal.ConfigError{
		Problem: fmt.Sprintf("it is not safe to grant privileges to role %q: role %q has its ADMIN OPTION, and may act as it", role,
			who),
		Hint: []string{
			fmt.Sprintf("REVOKE ADMIN OPTION FOR %s FROM %s;", database.Quote(role), database.Quote(who)),
			"or choose other names: --role, --stream-role, --reader-role, --operator-role, --searcher-role",
			database.TrustOwners(role, who),
		}, Code: code.Untrusted, Trust: []string{who},
	}
}

// Grants returns the script with the worker role's grants for all stored pipelines.
func (r Roles) Grants(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	if err := r.given(ctx, pool); err != nil {
		return "", err
	}
	pipelines, err := lookup.All(ctx, pool)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range pipelines {
		p := &pipelines[i]
		fmt.Fprintf(&b, "\n-- Pipeline %q:\n", p.Name)
		var statements []string
		if p.Status == pipeline.Active || p.Status == pipeline.Misconfigured { // it may lack only a grant
			statements, err = resolve.Grants(ctx, pool, p, r.Run)
			if err != nil && p.Status == pipeline.Active {
				return "", err
			}
		}
		if len(statements) == 0 || err != nil {
			b.WriteString("-- omitted, because it cannot work now: " + wording.OneLine(p.Detail) + "\n")
			continue
		}
		b.WriteString(strings.Join(statements, "\n") + "\n")
	}
	return b.String(), nil
}

// Apply runs a script atomically: several statements sent at once are one transaction.
func (r Roles) Apply(ctx context.Context, pool *pgxpool.Pool, script string) error {
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Conn().PgConn().Exec(ctx, script).ReadAll()
		return err
	})
	return wrap.Errorf(err, "run the SQL for roles %q and %q", r.Run, r.Stream)
}
