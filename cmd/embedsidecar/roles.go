package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/setup"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// usualRole is what the script calls the role.
const usualRole = "embedsidecar_run"

// rolesCommand prints the grants of the least-privileged role.
type rolesCommand struct {
	role string
}

func newRoles() *command {
	c := &rolesCommand{}
	return &command{
		name: "roles", group: groupAdmin, usage: "print the SQL for the least-privileged role that run needs",
		description: "With a database, the grants for each pipeline that is set up there come last. Runs nothing.",
		flags:       []cli.Flag{&cli.StringFlag{Name: "role", Destination: &c.role, DefaultText: usualRole, Usage: "`NAME` of the role"}},
		settings:    databaseGroups,
		run:         c.run,
	}
}

func (c *rolesCommand) run(ctx context.Context, env *environment) error {
	if c.role == "" {
		c.role = usualRole
	}
	script := sqlfiles.Roles()
	if c.role != usualRole {
		script = strings.ReplaceAll(script, usualRole, pgx.Identifier{c.role}.Sanitize())
	}
	if env.namesDatabase() {
		grants, err := c.grants(ctx, env)
		if err != nil { // the rest is worth having without them
			env.say("the grants for each pipeline are left out: %s", err)
		}
		script += grants
	}
	return env.printf("%s", script)
}

// grants returns what the role needs for each pipeline that is set up.
func (c *rolesCommand) grants(ctx context.Context, env *environment) (string, error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	pipelines, err := everything(ctx, pool)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range pipelines {
		p := &pipelines[i]
		b.WriteString("\n-- Pipeline " + cleanCell(p.Name) + ":\n")
		if p.Status != pipeline.Active {
			b.WriteString("-- left out, as it cannot work now: " + cleanCell(p.Detail) + "\n")
			continue
		}
		statements, err := setup.Grants(ctx, pool, p, c.role)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Join(statements, "\n") + "\n")
	}
	return b.String(), nil
}
