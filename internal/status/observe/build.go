package observe

import (
	"runtime"
	"runtime/debug"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Build is what the program knows of itself.
type Build struct {
	Version        string `json:"version"`
	Revision       string `json:"revision,omitempty"`
	Go             string `json:"go"`
	Platform       string `json:"platform"`
	PluginProtocol int    `json:"plugin_protocol"`
}

// BuildOf is the build of this program: its version and revision as the linker was told them, or else as the Go tool
// has stamped them.
func BuildOf(version, revision string) Build {
	b := Build{
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
