package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// ModelSettings are what the file says of a model for its plugin, in the words of a manifest. A plugin gets them as
// variables; what changes a vector changes the model's fingerprint.
type ModelSettings struct {
	// Values are by the name of the plugin's variable without EMBEDSIDECAR_PLUGIN_.
	Values map[string]string
	// From names variables of ours, by those of the plugin that get their values: keys.
	From map[string]string
}

// String names the settings and hides what they say: a proxy's address may hold a password.
func (m ModelSettings) String() string { return strings.Join(slices.Sorted(maps.Keys(m.Values)), ",") }

// GoString keeps %#v from showing what String hides.
func (m ModelSettings) GoString() string { return "config.ModelSettings{" + m.String() + "}" }

// Dims is how many numbers of each vector are kept; 0: all, or the plugin's own setting says it.
func (m ModelSettings) Dims() int {
	dims, err := strconv.Atoi(m.Values["DIMS"])
	if err != nil {
		return 0
	}
	return dims
}

func (m *ModelSettings) put(variable, value string) {
	if m.Values == nil {
		m.Values = map[string]string{}
	}
	m.Values[variable] = value
}

// told are settings of a model that several manifests have, or every plugin: which one is meant may be said further
// down.
type told []toldSetting

// toldSetting is what a value is to one manifest.
type toldSetting struct {
	by              *manifest.Manifest
	name            string
	variable, value string
	err             error
}
