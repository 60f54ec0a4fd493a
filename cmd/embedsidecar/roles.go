package main

import (
	"context"

	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// rolesCommand prints the grants of the least-privileged role.
type rolesCommand struct{}

func newRoles() *command {
	c := &rolesCommand{}
	return &command{
		name: "roles", group: groupAdmin, usage: "print the SQL for the least-privileged role that run needs",
		run: c.run,
	}
}

func (c *rolesCommand) run(_ context.Context, env *environment) error {
	return env.printf("%s", sqlfiles.Roles())
}
