package main

// groupPlugins is the heading of what is done with plugins outside the run.
const groupPlugins = "Plugins"

// pluginCommands returns the commands of "embedsidecar plugins", in the order of the help text. Each is in a file of
// its own, plugins_NAME.go, and has "plugins " before its name.
func pluginCommands() []*command {
	return []*command{
		newPluginsList(), newPluginsInfo(), newPluginsVerify(), newPluginsRegister(), newPluginsRemove(), newPluginsReload(),
		newPluginsNew(), newPluginsTest(), newPluginsBench(),
	}
}
