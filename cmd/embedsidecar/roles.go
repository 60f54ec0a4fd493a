package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/setup/roles"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// rolesCommand prints the SQL that makes the least-privileged roles.
type rolesCommand struct {
	names  roles.Roles
	grants bool // those of the pipelines alone
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
			own.text("role", &c.names.Run, "`NAME` of the role that works", sqlfiles.RunRole),
			own.text("stream-role", &c.names.Stream, "`NAME` of the role that streams", sqlfiles.StreamRole),
			own.text("reader-role", &c.names.Reader, "`NAME` of the group that reads the views", sqlfiles.ReaderRole),
			own.text("operator-role", &c.names.Operator, "`NAME` of the group that may also act", sqlfiles.OperatorRole),
			own.text("searcher-role", &c.names.Searcher, "`NAME` of the group that may search by SQL", sqlfiles.SearcherRole),
			own.toggle("grants", &c.grants, "print only the grants for the pipelines, for the role that runs now unless --role is given"),
		},
		settings: databaseGroups,
		acts:     true,
		run:      c.run,
	}
}

func (c *rolesCommand) run(ctx context.Context, env *environment) error {
	if c.grants && c.names.Run == "" {
		if err := c.running(ctx, env); err != nil {
			return err
		}
	}
	r, err := roles.Named(c.names)
	if err != nil {
		return err
	}
	if env.yes {
		return c.apply(ctx, env, r)
	}
	if c.grants {
		grants, err := env.grants(ctx, r)
		return errors.Join(err, env.printf("%s", strings.TrimPrefix(grants, "\n")))
	}
	script := r.Script()
	if env.config.NamesDatabase(env.environ) {
		grants, err := env.grants(ctx, r)
		if err != nil { // the rest is worth having without them
			env.say("the grants for each pipeline are left out: %s", err)
		}
		script += grants
	}
	return env.printf("%s", script)
}

// running has the grants go to the role that works now.
func (c *rolesCommand) running(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	c.names.Run, err = roles.Running(ctx, pool)
	return err
}

// apply runs what would be printed.
func (c *rolesCommand) apply(ctx context.Context, env *environment, r roles.Roles) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
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

// grants connects, and returns what the role that works needs for each pipeline.
func (e *environment) grants(ctx context.Context, r roles.Roles) (string, error) {
	pool, err := e.connect(ctx)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	return r.Grants(ctx, pool)
}
