package main

import (
	"cmp"
	"context"
	"os/user"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

// dashboardListen is where dashboard listens unless told otherwise: a free port.
const dashboardListen = "127.0.0.1:0"

func newDashboard() *command {
	c := &dashboardCommand{}
	return &command{
		name: "dashboard", group: groupObserve, usage: "show pages to look and act by in a browser, to whoever has the address that is printed",
		description: "Listens on this machine alone, at a free port unless --admin-listen names one, and prints an address with a token that ends with the command. Asks the database, so it also works while no sidecar runs. The dashboard of a sidecar, for several people with tokens of their own, is that of run --admin-listen.",
		settings:    []string{config.GroupDatabase, config.GroupEmbedding, config.GroupAdmin},
		flags: []cli.Flag{
			own.toggle("read-only", &c.readOnly, "offer no action"),
			own.toggle("row-text", &c.rowText, "show texts of rows to who asks for them"),
		},
		run: c.run,
	}
}

// dashboardCommand shows pages to whoever has their address.
type dashboardCommand struct{ readOnly, rowText bool }

func (c *dashboardCommand) run(ctx context.Context, env *environment) error {
	admin := &env.config.Admin
	admin.ReadOnly, admin.ShowRowText = admin.ReadOnly || c.readOnly, admin.ShowRowText || c.rowText
	name := "you"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	n := app.NewDashboard(env.node())
	err := n.Dashboard(ctx, cmp.Or(env.config.Admin.Listen, dashboardListen), name, func(url string) error {
		env.say("open this in a browser; interrupt to end")
		return env.printf("%s\n", url)
	})
	if exitCode(ctx, err) == exitInterrupted {
		return nil // that is how it is told to stop
	}
	return err
}
