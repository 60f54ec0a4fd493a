package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/setup/roles"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// rolesCommand prints the SQL for the least-privileged roles.
type rolesCommand struct {
	names  roles.Roles
	grants bool // only the grants for pipelines
}

func newRoles() *command {
	c := &rolesCommand{}
	return &command{
		name: "roles", group: groupAdmin,
		usage: "print the SQL for the roles of the sidecar, and for groups that read, operate and search by SQL",
		description: "With a database, the grants for each pipeline come last. Runs nothing without --yes; with it, " +
			"everything in one transaction, as the connecting role. Can be repeated, for example after init has " +
			"set up another pipeline. For production.",
		flags: []cli.Flag{
			own.text("role", &c.names.Run, "`NAME` name of the role that works", sqlfiles.RunRole),
			own.text("stream-role", &c.names.Stream, "`NAME` name of the role that streams", sqlfiles.StreamRole),
			own.text("reader-role", &c.names.Reader, "`NAME` name of the group that reads the views", sqlfiles.ReaderRole),
			own.text("operator-role", &c.names.Operator, "`NAME` name of the group that may also act", sqlfiles.OperatorRole),
			own.text("searcher-role", &c.names.Searcher, "`NAME` name of the group that may search by SQL", sqlfiles.SearcherRole),
			own.toggle("grants", &c.grants, "print only the grants for the pipelines, for the role that runs now unless --role is given"),
		},
		settings: databaseGroups,
		acts:     true,
		run:      c.run,
	}
}

func (c *rolesCommand) run(ctx context.Context, env *environment) error {
	if c.grants && c.names.Run == "" {
		if err := env.connected(ctx, func(pool *pgxpool.Pool) (err error) { // for the role of the running sidecar
			c.names.Run, err = roles.Running(ctx, pool)
			return err
		}); err != nil {
			return err
		}
	}
	r, err := roles.Named(c.names)
	if err != nil {
		return err
	}
	if env.yes {
		return env.connected(ctx, func(pool *pgxpool.Pool) error { return c.apply(ctx, env, pool, r) })
	}
	if c.grants {
		grants, err := env.grants(ctx, r)
		return errors.Join(err, env.printf("%s", strings.TrimPrefix(grants, "\n")))
	}
	script := r.Script()
	if env.config.NamesDatabase(env.environ) {
		grants, err := env.grants(ctx, r)
		if err != nil { // print the rest without them
			env.say("the grants for each pipeline are left out: %s", err)
		}
		script += grants
	}
	return env.printf("%s", script)
}

func (c *rolesCommand) apply(ctx context.Context, env *environment, pool *pgxpool.Pool, r roles.Roles) error {
	script, err := r.Grants(ctx, pool)
	if err != nil {
		return err
	}
	if !c.grants {
		script = r.Script() + script
	}
	if err := r.Apply(ctx, pool, script); err != nil {
		return err
	}
	env.say("roles %q and %q have what they need", r.Run, r.Stream)
	return nil
}

// grants connects, and returns the grants that the sidecar's role needs for each pipeline.
func (e *environment) grants(ctx context.Context, r roles.Roles) (script string, err error) {
	err = e.connected(ctx, func(pool *pgxpool.Pool) (err error) { script, err = r.Grants(ctx, pool); return err })
	return script, err
}
