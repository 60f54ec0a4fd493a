package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/embedsidecar/embedsidecar/internal/node/observe"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// versionCommand tells what this program is.
type versionCommand struct{}

func newVersion() *command {
	c := &versionCommand{}
	return &command{name: "version", group: groupTool, usage: "tell the version", run: c.run}
}

// thisBuild is what the linker was told, and what the Go tool has stamped where nobody told it anything.
func thisBuild() observe.Build {
	b := observe.Build{
		Version: version, Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		PluginProtocol: pluginpb.ProtocolVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "unknown" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && b.Revision == "" {
			b.Revision = setting.Value
		}
	}
	return b
}

func (c *versionCommand) run(_ context.Context, env *environment) error {
	b := thisBuild()
	if env.output == "table" {
		of := ""
		if b.Revision != "" {
			of = " of revision " + b.Revision
		}
		return env.printf("embedsidecar %s%s (%s, %s)\n", b.Version, of, b.Go, b.Platform)
	}
	return env.show(b, func() listing {
		return listing{
			header: []string{"version", "revision", "go", "platform", "plugin_protocol"},
			rows:   [][]any{{b.Version, b.Revision, b.Go, b.Platform, fmt.Sprint(b.PluginProtocol)}},
		}
	})
}
