// Package manifest holds what the sidecar knows of plugins before it starts them: an embedded file for each. A plugin
// without a library, keys or settings of its own has no manifest. It gets the settings of the default plugin, and as
// model the folder of that name if there is one, else the name. No other code names a plugin.
package manifest

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

//go:embed *.yaml
var files embed.FS

// Manifest describes one plugin.
type Manifest struct {
	Name string `yaml:"name"`
	// Default: pipelines and models without a plugin use this one. Exactly one manifest sets it.
	Default bool `yaml:"default"`
	// Prefix begins the variables of its settings, after the prefix of all plugins. "": it has the settings of plugins
	// without settings of their own.
	Prefix string `yaml:"prefix"`
	// Model says how the plugin's model is given.
	Model Model `yaml:"model"`
	// Library is a library that the plugin loads; nil: none.
	Library *Library `yaml:"library"`
	// Sees are variables of the sidecar that the plugin gets unchanged.
	Sees []Sees `yaml:"sees"`
	// Settings are the plugin's settings in a model's entry of the configuration.
	Settings []Setting `yaml:"settings"`
	// ChosenBy names the setting that selects this plugin for a model without a plugin; "": none.
	ChosenBy string `yaml:"chosen_by"`
	// Rerankers are the values of that setting for rerankers.
	Rerankers []string `yaml:"rerankers"`
	// Governs names settings that make all settings of a model be read as this plugin's, even if the model uses a
	// plugin without a manifest, which replaces this one.
	Governs []string `yaml:"governs"`
	// Key is the plugin's API key; nil: none.
	Key *Key `yaml:"key"`
	// CallTimeout names the setting for the time limit of the plugin's requests, from which that of calls follows; "":
	// none.
	CallTimeout string `yaml:"call_timeout"`
}

// Kind is how a plugin's model is given.
type Kind string

// The kinds of models.
const (
	Either Kind = ""       // a folder if there is one by the name, else the name
	Folder Kind = "folder" // a folder, which must exist
	Name   Kind = "name"   // any name
)

// Model says what a plugin takes for a model.
type Model struct {
	Kind Kind `yaml:"kind"`
	// Default is the default model; "": the plugin decides.
	Default string `yaml:"default"`
	// Is describes a model for users.
	Is string `yaml:"is"`
	// Checks: the plugin itself verifies the weights against a pinned sum.
	Checks bool `yaml:"checks"`
	// Encoders are encoders that only this plugin can run, by model_type in config.json or the first module of
	// modules.json.
	Encoders []string `yaml:"encoders"`
	// Weights are candidates for the file to load and pin: the first one that applies and exists, or else the last.
	Weights []Weights `yaml:"weights"`
}

// Weights is a file that applies if variables of the plugin, without their prefix, have these values.
type Weights struct {
	File  string            `yaml:"file"`
	Where map[string]string `yaml:"where"`
}

// Sees are variables that the plugin gets if its own variables, without their prefix, have these values.
type Sees struct {
	Where     map[string]string `yaml:"where"`
	Variables []string          `yaml:"variables"`
}

// Library is a shared library of a plugin. Its path is a setting of the sidecar.
type Library struct {
	Is       string `yaml:"is"`       // in words
	Name     string `yaml:"name"`     // start of the file's name
	Setting  string `yaml:"setting"`  // configuration path, and flag
	Variable string `yaml:"variable"` // that passes the path to the plugin
	Cache    string `yaml:"cache"`    // folder in the user's cache directory
}

// Key is a plugin's secret: its variable, and the settings that name a file or a variable of the sidecar with it.
type Key struct {
	Variable string `yaml:"variable"`
	File     string `yaml:"file"`
	Env      string `yaml:"env"`
}

// Type is the type of a setting's value.
type Type string

// The types of settings.
const (
	Number   Type = "number"   // 1 to Most
	Choice   Type = "choice"   // one of Choices
	Bool     Type = "bool"     // true or false
	Words    Type = "words"    // up to Most bytes; may be empty
	Text     Type = "text"     // not empty; the plugin validates it
	File     Type = "file"     // a path
	List     Type = "list"     // values without white space and commas; the plugin gets one per line
	JSON     Type = "json"     // keys and values; the plugin gets JSON
	Variable Type = "variable" // the name of a variable of the sidecar with the value
)

// Setting is one of a plugin's settings in the configuration.
type Setting struct {
	Name     string   `yaml:"name"` // with dots for mappings: batch.texts
	Type     Type     `yaml:"type"`
	Most     int      `yaml:"most"`
	Choices  []string `yaml:"choices"`
	Variable string   `yaml:"variable"` // the plugin's name for it, after the prefix; "": from Name, as BATCH_TEXTS
}

// all reads the files once. They are embedded, so an invalid one is a bug, which any test finds.
var all = sync.OnceValue(func() []*Manifest {
	list, err := parse(files)
	if err != nil {
		panic(err)
	}
	return list
})

// parse returns the manifests of a folder, by file name.
func parse(folder fs.FS) ([]*Manifest, error) {
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	var list []*Manifest
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, fmt.Errorf("read the manifest %s: %w", name, err)
		}
		m := &Manifest{}
		if err := yaml.UnmarshalWithOptions(data, m, yaml.Strict()); err != nil {
			return nil, fmt.Errorf("read the manifest %s: %w", name, err)
		}
		if m.Name+".yaml" != name {
			return nil, fmt.Errorf("the manifest %s is that of plugin %q", name, m.Name)
		}
		for i := range m.Settings {
			if s := &m.Settings[i]; s.Variable == "" {
				s.Variable = strings.ToUpper(strings.ReplaceAll(s.Name, ".", "_"))
			}
			m.Settings[i].Variable = m.Prefix + m.Settings[i].Variable
		}
		if m.Key != nil {
			m.Key.Variable = m.Prefix + m.Key.Variable
		}
		list = append(list, m)
	}
	return list, nil
}

// All returns every manifest.
func All() []*Manifest { return all() }

// Of returns the manifest of a plugin, nil if it has none.
func Of(plugin string) *Manifest {
	for _, m := range all() {
		if m.Name == plugin {
			return m
		}
	}
	return nil
}

// For returns the manifest of a plugin, or that of plugins without one.
func For(plugin string) *Manifest {
	if m := Of(plugin); m != nil {
		return m
	}
	usual := Default()
	return &Manifest{Name: plugin, Settings: usual.Settings, Model: Model{Weights: usual.Model.Weights}}
}

// Reranks reports whether a model's settings, by variable, make it a reranker.
func (m *Manifest) Reranks(settings map[string]string) bool {
	return slices.ContainsFunc(m.Settings, func(s Setting) bool {
		return s.Name == m.ChosenBy && slices.Contains(m.Rerankers, settings[s.Variable])
	})
}

// Default returns the manifest of the default plugin.
func Default() *Manifest {
	return all()[slices.IndexFunc(all(), func(m *Manifest) bool { return m.Default })]
}

// OfFolders returns the manifest of the plugin for model folders, unless their content needs another.
func OfFolders() *Manifest {
	return all()[slices.IndexFunc(all(), func(m *Manifest) bool { return m.Model.Kind == Folder })]
}

// ByContent returns the manifest of the plugin that alone can run a model folder; nil: none.
func ByContent(folder string) *Manifest {
	var config struct {
		Type string `json:"model_type"`
	}
	var modules []struct {
		Type string `json:"type"`
	}
	read(folder, "config.json", &config)
	read(folder, "modules.json", &modules)
	found := []string{config.Type}
	if len(modules) > 0 {
		found = append(found, modules[0].Type[strings.LastIndexByte(modules[0].Type, '.')+1:])
	}
	for _, m := range all() {
		if slices.ContainsFunc(m.Model.Encoders, func(e string) bool { return slices.Contains(found, e) }) {
			return m
		}
	}
	return nil
}

// read reads a small file of a model folder. It ignores errors, which the plugin reports.
func read(home, name string, into any) {
	if file, err := folder.OpenRegular(os.OpenFile, filepath.Join(home, name)); err == nil {
		defer func() { _ = file.Close() }()
		_ = json.NewDecoder(io.LimitReader(file, 1<<20)).Decode(into)
	}
}

// Setting returns the setting with a name, or nil.
func (m *Manifest) Setting(name string) *Setting {
	for i := range m.Settings {
		if m.Settings[i].Name == name {
			return &m.Settings[i]
		}
	}
	return nil
}

// VariableOf returns the plugin's variable for a setting; "": there is no such setting.
func (m *Manifest) VariableOf(setting string) string {
	if s := m.Setting(setting); s != nil {
		return s.Variable
	}
	return ""
}
