// Package manifest is what the sidecar knows of plugins before it starts them: a file for each, embedded. A plugin
// that needs nothing of it (no library, no keys, no settings of its own) has no file: it gets the settings of the
// default plugin, and a model's folder if there is one by the name, else the name. Nothing outside these files knows a
// plugin by its name.
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

// Manifest is one plugin's.
type Manifest struct {
	Name string `yaml:"name"`
	// Default: it is the plugin of pipelines and models that name none. One of all manifests says so.
	Default bool `yaml:"default"`
	// Transport is how it is reached. "": it is a program, which is started.
	Transport string `yaml:"transport"`
	// Prefix begins the variables of its settings, after that of all plugins. "": its settings are those of every plugin
	// without some of its own.
	Prefix string `yaml:"prefix"`
	// Model says what the plugin takes for a model.
	Model Model `yaml:"model"`
	// Library is one that the plugin loads; nil: none.
	Library *Library `yaml:"library"`
	// Sees are variables of ours that it gets as they are.
	Sees []Sees `yaml:"sees"`
	// Settings are what a model of the file may say for the plugin.
	Settings []Setting `yaml:"settings"`
	// ChosenBy names the setting by which a model without a plugin is one of this plugin; "": none does.
	ChosenBy string `yaml:"chosen_by"`
	// Rerankers are values of that setting whose models score texts for a query, and make no vectors.
	Rerankers []string `yaml:"rerankers"`
	// Governs names settings by each of which all settings of a model are meant as this plugin's, though its plugin is
	// another without a manifest: one that stands in for it.
	Governs []string `yaml:"governs"`
	// Key is what the plugin shows to a server; nil: it has none.
	Key *Key `yaml:"key"`
	// CallTimeout names the setting that says how long a request of the plugin takes, so that a call may; "": none does.
	CallTimeout string `yaml:"call_timeout"`
}

// Kind is what the plugin takes for a model.
type Kind string

// The kinds of models.
const (
	Either Kind = ""       // a folder if there is one by the name, else the name
	Folder Kind = "folder" // a folder, which must be there
	Name   Kind = "name"   // a name, whatever is in it
)

// Model says what a plugin takes for a model.
type Model struct {
	Kind Kind `yaml:"kind"`
	// Default is the model when nobody names one; "": the plugin knows.
	Default string `yaml:"default"`
	// Is describes one for who looks for it.
	Is string `yaml:"is"`
	// Checks: the plugin itself compares the weights with a sum that is pinned.
	Checks bool `yaml:"checks"`
	// Encoders are those that no other plugin of folders runs, as model_type in config.json or the first module of
	// modules.json is called.
	Encoders []string `yaml:"encoders"`
	// Weights are files of the folder that may be what is loaded and pinned: the first that is meant and there, or else
	// the last.
	Weights []Weights `yaml:"weights"`
}

// Weights is a file that is meant where variables of the plugin, without their prefix, have these values.
type Weights struct {
	File  string            `yaml:"file"`
	Where map[string]string `yaml:"where"`
}

// Sees are variables that are for the plugin where variables of its own, without their prefix, have these values.
type Sees struct {
	Where     map[string]string `yaml:"where"`
	Variables []string          `yaml:"variables"`
}

// Library is what a plugin loads. Its path is a setting of the sidecar.
type Library struct {
	Is       string `yaml:"is"`       // in words
	Name     string `yaml:"name"`     // how the file's name begins
	Setting  string `yaml:"setting"`  // path in the file, and flag
	Variable string `yaml:"variable"` // by which the plugin gets the path
	Cache    string `yaml:"cache"`    // folder in the user's cache
}

// Key is the secret of a plugin: its variable, and the settings for a file and for a variable of ours that have it.
type Key struct {
	Variable string `yaml:"variable"`
	File     string `yaml:"file"`
	Env      string `yaml:"env"`
}

// Type is what a setting's value is.
type Type string

// The types of settings.
const (
	Number   Type = "number"   // 1 to Most
	Choice   Type = "choice"   // one of Choices
	Bool     Type = "bool"     // true or false
	Words    Type = "words"    // up to Most bytes, perhaps none
	Text     Type = "text"     // not empty; the plugin judges it
	File     Type = "file"     // a path
	List     Type = "list"     // of values without white space and commas, which the plugin gets on lines of their own
	JSON     Type = "json"     // keys and values, which the plugin gets as JSON
	Variable Type = "variable" // the name of a variable of ours that holds the value
)

// Setting is what a model of the file may say for a plugin.
type Setting struct {
	Name     string   `yaml:"name"` // with points for mappings: batch.texts
	Type     Type     `yaml:"type"`
	Most     int      `yaml:"most"`
	Choices  []string `yaml:"choices"`
	Variable string   `yaml:"variable"` // what the plugin calls it, behind the prefix; "": BATCH_TEXTS of the name
}

// all reads the files once. They are part of the program: one that cannot be read is a mistake in it, which the first
// test finds.
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

// Of returns the manifest of a plugin, nil when it has none.
func Of(plugin string) *Manifest {
	for _, m := range all() {
		if m.Name == plugin {
			return m
		}
	}
	return nil
}

// For returns the manifest of a plugin, or that of a plugin which needs nothing.
func For(plugin string) *Manifest {
	if m := Of(plugin); m != nil {
		return m
	}
	usual := Default()
	return &Manifest{Name: plugin, Settings: usual.Settings, Model: Model{Weights: usual.Model.Weights}}
}

// Reranks reports whether settings of a model, by their variables, say that it scores texts and makes no vectors.
func (m *Manifest) Reranks(settings map[string]string) bool {
	return slices.ContainsFunc(m.Settings, func(s Setting) bool {
		return s.Name == m.ChosenBy && slices.Contains(m.Rerankers, settings[s.Variable])
	})
}

// Default returns the manifest of the plugin of who names none.
func Default() *Manifest {
	return all()[slices.IndexFunc(all(), func(m *Manifest) bool { return m.Default })]
}

// OfFolders returns the manifest of the plugin that model folders are made for, where nothing in them says otherwise.
func OfFolders() *Manifest {
	return all()[slices.IndexFunc(all(), func(m *Manifest) bool { return m.Model.Kind == Folder })]
}

// ByContent returns the manifest of the plugin that alone runs what a model folder holds; nil: there is no such.
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

// read reads a small file of a model folder. What is wrong with it the plugin says.
func read(home, name string, into any) {
	if file, err := folder.OpenRegular(os.OpenFile, filepath.Join(home, name)); err == nil {
		defer func() { _ = file.Close() }()
		_ = json.NewDecoder(io.LimitReader(file, 1<<20)).Decode(into)
	}
}

// Setting returns a setting, nil for a name that the plugin has none of.
func (m *Manifest) Setting(name string) *Setting {
	for i := range m.Settings {
		if m.Settings[i].Name == name {
			return &m.Settings[i]
		}
	}
	return nil
}

// VariableOf returns what the plugin calls a setting; "": it has none of that name.
func (m *Manifest) VariableOf(setting string) string {
	if s := m.Setting(setting); s != nil {
		return s.Variable
	}
	return ""
}
