package config

import (
	"net/url"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/secret"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// pluginVariables returns what a plugin gets of the variables that begin like those of plugins.
// EMBEDSIDECAR_PLUGIN_TOY_... is for the plugin toy alone; a plugin that stands in for another (serving) has what is
// that one's, too. Whatever else holds a secret is for nobody: the one who should have it has an entry that names it.
func (c *Config) pluginVariables(find Finder, plugin string, serving *manifest.Manifest) map[string]string {
	known := c.knownPlugins(find, plugin)
	got := map[string]string{}
	for name, value := range c.env.vars {
		if !strings.HasPrefix(name, pluginEnvPrefix) || ownVariable(name) {
			continue
		}
		owner := variableOwner(name, known)
		switch {
		case owner == variablesOf(plugin):
			got[name] = value
		case isSecret(name, value):
		case owner == "", serving.Prefix != "" && owner == pluginEnvPrefix+serving.Prefix:
			got[name] = value
		}
	}
	return got
}

// knownPlugins are the names of all plugins that this configuration may run.
func (c *Config) knownPlugins(find Finder, plugin string) []string {
	names := append(find.Plugins(c.Plugins.Dir), plugin, c.Plugins.Default)
	for _, of := range manifest.All() {
		if of.Prefix != "" {
			names = append(names, of.Name)
		}
	}
	for _, list := range [][]Plugin{c.Plugins.Catalog, c.Plugins.Registered} {
		for _, p := range list {
			names = append(names, p.Name)
		}
	}
	for _, m := range c.Models {
		names = append(names, m.Plugin)
	}
	for _, p := range c.Pipelines {
		names = append(names, p.Plugin)
	}
	return names
}

// variablesOf is how the variables of one plugin begin.
func variablesOf(plugin string) string {
	if plugin == "" {
		return ""
	}
	sign := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}
	return pluginEnvPrefix + strings.Map(sign, pluginName(plugin)) + "_"
}

// variableOwner is how the variables of that plugin begin whose variable this is, the longest of several; "": it is
// nobody's own.
func variableOwner(name string, plugins []string) string {
	longest := ""
	for _, plugin := range plugins {
		if own := variablesOf(plugin); len(own) > len(longest) && strings.HasPrefix(name, own) {
			longest = own
		}
	}
	return longest
}

// isSecret reports whether a variable holds a secret or names its file, by its name, or has a password in its address.
func isSecret(name, value string) bool {
	if secret.Variable(name) || secret.File(name) {
		return true
	}
	address, err := url.Parse(value)
	if err != nil {
		return strings.Contains(value, "://") && strings.Contains(value, "@")
	}
	_, password := address.User.Password()
	return password
}
