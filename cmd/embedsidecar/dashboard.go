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
		name: "dashboard", group: groupObserve, usage: "serve the dashboard on this machine and print its address",
		description: "Listens on a loopback address, at a free port unless --admin-listen names one. The printed address " +
			"has a token that ends with the command. Reads the database, so it works without a running sidecar. " +
			"For one person; for a team, use run --admin-listen with tokens.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding, config.GroupAdmin},
		flags: []cli.Flag{
			own.toggle("read-only", &c.readOnly, "offer no action"),
			own.toggle("row-text", &c.rowText, "show texts of rows on request"),
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
