package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// rolesCommand prints the SQL that makes the least-privileged roles.
type rolesCommand struct {
	role, stream string
	grants       bool // those of the pipelines alone
}

func newRoles() *command {
	c := &rolesCommand{}
	return &command{
		name: "roles", group: groupAdmin, usage: "print the SQL for the two roles that run needs: one works, one streams",
		description: "With a database, the grants for each pipeline that is set up there come last. Runs nothing unless --yes is given: then all of it in one transaction, as the role that connects. The script may be run again, as after init has set up another pipeline.",
		flags: []cli.Flag{
			&cli.StringFlag{
				Name: "role", Destination: &c.role, DefaultText: sqlfiles.RunRole,
				Usage: "`NAME` of the role that works",
			},
			&cli.StringFlag{
				Name: "stream-role", Destination: &c.stream, DefaultText: sqlfiles.StreamRole,
				Usage: "`NAME` of the role that streams",
			},
			&cli.BoolFlag{
				Name: "grants", Destination: &c.grants, DisableDefaultText: true,
				Usage: "print the grants for the pipelines alone",
			},
		},
		settings: databaseGroups,
		acts:     true,
		run:      c.run,
	}
}

func (c *rolesCommand) run(ctx context.Context, env *environment) error {
	c.role, c.stream = cmp.Or(c.role, sqlfiles.RunRole), cmp.Or(c.stream, sqlfiles.StreamRole)
	for _, name := range []string{c.role, c.stream} {
		if strings.ContainsAny(name, "\x00\r\n") || strings.Contains(name, "$embedsidecar$") {
			return misuse("%q is no name for a role in a script", name)
		}
	}
	if env.yes {
		return c.apply(ctx, env)
	}
	if c.grants {
		grants, err := c.pipelines(ctx, env)
		return errors.Join(err, env.printf("%s", strings.TrimPrefix(grants, "\n")))
	}
	script := sqlfiles.Roles(c.role, c.stream)
	if env.namesDatabase() {
		grants, err := c.pipelines(ctx, env)
		if err != nil { // the rest is worth having without them
			env.say("the grants for each pipeline are left out: %s", err)
		}
		script += grants
	}
	return env.printf("%s", script)
}

// apply runs what would be printed: all of it or none, as several statements sent at once are one transaction.
func (c *rolesCommand) apply(ctx context.Context, env *environment) error {
	script, err := c.pipelines(ctx, env)
	if err != nil {
		return err
	}
	if !c.grants {
		script = sqlfiles.Roles(c.role, c.stream) + script
	}
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Conn().PgConn().Exec(ctx, script).ReadAll()
		return err
	})
	if err != nil {
		return fmt.Errorf("run the SQL for roles %q and %q: %w", c.role, c.stream, err)
	}
	env.say("roles %q and %q have what they need", c.role, c.stream)
	return nil
}

// pipelines returns what the role needs for each pipeline that is set up.
func (c *rolesCommand) pipelines(ctx context.Context, env *environment) (string, error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	pipelines, err := lookup.All(ctx, pool)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range pipelines {
		p := &pipelines[i]
		fmt.Fprintf(&b, "\n-- Pipeline %q:\n", p.Name)
		if p.Status != pipeline.Active {
			b.WriteString("-- left out, as it cannot work now: " + cleanCell(p.Detail) + "\n")
			continue
		}
		statements, err := resolve.Grants(ctx, pool, p, c.role)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Join(statements, "\n") + "\n")
	}
	return b.String(), nil
}
