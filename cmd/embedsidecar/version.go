package main

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// Set by the linker: -X main.version=... -X main.revision=...
var (
	version  = "unknown"
	revision = ""
)

func newVersion() *command {
	return &command{
		name: "version", group: groupTool, usage: "print the version",
		description: "For reports of bugs.",
		run: func(_ context.Context, env *environment) error {
			b := thisBuild()
			if env.out.ForPeople() {
				of := ""
				if b.Revision != "" {
					of = " of revision " + b.Revision
				}
				return env.printf("embedsidecar %s%s (%s, %s)\n", b.Version, of, b.Go, b.Platform)
			}
			return env.out.Show(b, func() output.Table {
				return output.Row([]string{"version", "revision", "go", "platform", "plugin_protocol"},
					b.Version, b.Revision, b.Go, b.Platform, b.PluginProtocol)
			})
		},
	}
}

// thisBuild returns the build set by the linker, or else the one stamped by the Go tool.
func thisBuild() observe.Build { return observe.BuildOf(version, revision) }
