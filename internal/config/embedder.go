package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/secret"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Embedder has all that is needed to start the plugin of a pipeline.
type Embedder struct {
	Plugin       string        // as configured, or the name of its program
	PluginPath   string        // of its program; absolute
	PluginSHA256 string        // "": not checked
	Model        string        // as configured; "": the plugin's default
	ModelPath    string        // absolute folder; "" if the model is only a name
	ModelSHA256  string        // "": not checked
	Threads      int           // of each process; 0: the number of CPUs
	Processes    int           // 0: one
	MemoryLimit  int64         // bytes of each process; 0: none
	CallTimeout  time.Duration // of a call, without the time for its texts; 0: the default
	// Env is the plugin's whole environment: the variables of pluginVariables, and those that the catalog allows by
	// name.
	Env map[string]string
}

// PriceOf returns the price of a model.
func (c *Config) PriceOf(name string) pipeline.Price {
	if m := c.model(name); m != nil {
		return pipeline.Price{Million: m.Price, Batch: cmp.Or(m.BatchPrice, m.Price/2), Currency: c.Currency}
	}
	return pipeline.Price{}
}

// BudgetOf returns the common budget of all pipelines with a model.
func (c *Config) BudgetOf(name string) pipeline.Budget {
	if m := c.model(name); m != nil {
		return m.Budget
	}
	return pipeline.Budget{}
}

// model returns the listed model with a name or path, or nil.
func (c *Config) model(name string) *Model {
	for i := range c.Models {
		path := c.Models[i].Path
		if name != "" && (c.Models[i].Name == name || isPath(name) && path != "" && absolute(path) == absolute(name)) {
			return &c.Models[i]
		}
	}
	return nil
}

// Known returns an error unless the plugin and model of a stored pipeline are names, or paths in this configuration.
// Otherwise a role that can write to the table of pipelines could choose what runs here.
func (c *Config) Known(plugin, model string) error {
	configured := func(path string, of func(spec pipeline.Spec) string) bool {
		return slices.ContainsFunc(c.Pipelines, func(spec pipeline.Spec) bool { return of(spec) == path })
	}
	if isPath(plugin) && c.Plugin(plugin) == nil && plugin != c.Plugins.Default &&
		!configured(plugin, func(spec pipeline.Spec) string { return spec.Plugin }) &&
		!slices.ContainsFunc(c.Models, func(m Model) bool { return m.Plugin == plugin }) {
		return mistake(fmt.Sprintf("the plugin %q is a path that this configuration does not have: no other is run (--plugin, plugins.catalog, or embedsidecar plugins register)", plugin))
	}
	if isPath(model) && manifest.For(plugin).Model.Kind != manifest.Name && c.model(model) == nil &&
		model != c.DefaultModel &&
		!configured(model, func(spec pipeline.Spec) string { return spec.Model }) {
		return mistake(fmt.Sprintf("the model %q is a path that this configuration does not have: no other is read (--model, or models with a path)", model))
	}
	return nil
}

// ModelNames returns the names of the configured models.
func (c *Config) ModelNames() []string {
	return lists.Map(c.Models, func(v Model) string { return v.Name })
}

// samePlugin reports whether two names, or a name and the path of its catalog entry, mean the same plugin.
func (c *Config) samePlugin(a, b string) bool {
	x, y := c.Plugin(a), c.Plugin(b)
	return a == b || x != nil && y != nil && x.Name == y.Name && x.Path == y.Path
}

// Embedder finds a pipeline's plugin and model; empty names mean the defaults. Their manifests say which plugins need a
// model folder and a library: the others get the model's name and find the rest themselves. Errors are those of Finder.
func (c *Config) Embedder(find Finder, plugin, model string) (Embedder, error) {
	model = cmp.Or(model, c.DefaultModel)
	e := Embedder{Plugin: plugin, Model: model, Threads: c.Threads, Env: map[string]string{}}
	folder, m := c.folderOf(model), c.model(model)
	if m != nil {
		if e.Plugin != "" && !c.samePlugin(e.Plugin, m.Plugin) && e.Plugin != c.byContent(find.Model, m.Plugin, folder) {
			// The model's settings, above all its key, are only for the plugin of its entry.
			return e, mistake(fmt.Sprintf("model %q is configured for plugin %q, not for plugin %q", model,
				m.Plugin, e.Plugin))
		}
		e.ModelSHA256 = m.SHA256
		if m.Threads != 0 {
			e.Threads = m.Threads
		}
		e.Plugin = cmp.Or(e.Plugin, m.Plugin)
	}
	e.Plugin = cmp.Or(e.Plugin, c.Plugins.Default)
	e.Plugin = c.byContent(find.Model, e.Plugin, folder)
	program := e.Plugin
	if p := c.Plugin(e.Plugin); p != nil {
		e.PluginSHA256, e.Processes, e.MemoryLimit, e.CallTimeout = p.SHA256, p.Processes, p.MemoryLimit, p.CallTimeout
		if p.Path != "" {
			program = absolute(p.Path)
		}
		for _, name := range p.Env {
			if value, ok := c.env.vars[name]; ok {
				e.Env[name] = value
			}
		}
	}
	if e.Threads == 0 && e.Processes > 1 { // each would use all CPUs
		e.Threads = max(1, runtime.GOMAXPROCS(0)/e.Processes)
	}
	var err error
	if e.PluginPath, err = c.PluginProgram(find, program); err != nil {
		return e, err
	}
	e.Plugin = pluginName(e.Plugin)
	if err := c.fillEnv(&e, find, m, folder); err != nil {
		return e, err
	}
	if m != nil {
		m.Settings.into(e.Env, c.env.vars) // the model's settings take precedence over global ones
	}
	c.showSeen(e)
	e.CallTimeout = cmp.Or(e.CallTimeout, requestTimeout(e.Env))
	return e, nil
}

// showSeen gives the plugin those of our variables that its manifest allows for these settings.
func (c *Config) showSeen(e Embedder) {
	of := manifest.For(e.Plugin)
	for _, seen := range of.Sees {
		meant := true
		for variable, value := range seen.Where {
			meant = meant && e.Env[pluginEnvPrefix+of.Prefix+variable] == value
		}
		for _, name := range seen.Variables {
			if value, ok := c.env.vars[name]; ok && meant {
				e.Env[name] = value
			}
		}
	}
}

// folderOf returns the folder of a model, or its name.
func (c *Config) folderOf(model string) string {
	if m := c.model(model); m != nil && m.Path != "" {
		return absolute(m.Path)
	}
	return model
}

// byContent returns the plugin that can run a model folder, if the named plugin is for another kind of folder.
func (c *Config) byContent(find findFolder, plugin, folder string) string {
	if m := manifest.Of(plugin); folder == "" || find == nil || m == nil || m.Model.Kind != manifest.Folder {
		return plugin
	}
	path, err := find(folder, c.ModelDir)
	if err != nil {
		return plugin
	}
	if runs := manifest.ByContent(path); runs != nil {
		return runs.Name
	}
	return plugin
}

// PluginOf returns the plugin of a model: the configured one, unless only another can run its folder.
func (c *Config) PluginOf(model string) string {
	plugin := c.Plugins.Default
	if m := c.model(model); m != nil {
		plugin = m.Plugin
	}
	return c.byContent(c.folder, plugin, c.folderOf(model))
}

// PluginProgram returns the program of a plugin, as Finder.Plugin does. A *NotFoundError also says what to write in a
// configuration file: a user beside a running sidecar often has not named the sidecar's file.
func (c *Config) PluginProgram(find Finder, program string) (string, error) {
	path, err := find.Plugin(program, c.Plugins.Dir)
	return path, c.notFound(err)
}

// notFound adds to an error how a configuration file can name what is missing.
func (c *Config) notFound(err error) error {
	missing, is := errors.AsType[*NotFoundError](err)
	switch {
	case !is:
	case c.file == "":
		missing.More = fmt.Sprintf(
			"no configuration file was read: where the sidecar has one that names it, give the same with --config FILE or %s",
			EnvName("config"))
	case missing.Kind == "plugin":
		missing.More = fmt.Sprintf("%s may say where its file lies: plugins: {catalog: [{name: %s, path: ...}]}", c.file,
			pluginName(missing.Name))
	case missing.Kind == "model":
		missing.More = fmt.Sprintf("%s may say where its folder lies: models: [{name: %s, path: ...}]", c.file, missing.Name)
	}
	return err
}

// fillEnv sets the model folder, the library and the plugin's environment.
func (c *Config) fillEnv(e *Embedder, find Finder, m *Model, folder string) error {
	of := manifest.For(e.Plugin)
	serving := m.serving(e.Plugin)
	if e.Model == "" && of.Model.Default != "" {
		e.Model, folder = of.Model.Default, of.Model.Default
	}
	maps.Copy(e.Env, c.pluginVariables(find, e.Plugin, serving))
	// Fault injection also works in plugins.
	if value, ok := c.env.vars[envPrefix+"FAILPOINTS"]; ok {
		e.Env[envPrefix+"FAILPOINTS"] = value
	}
	if serving.Model.Kind == manifest.Name {
		if e.Model != "" {
			e.Env[pluginEnvPrefix+"MODEL"] = e.Model
		}
	} else if folder != "" {
		path, err := find.Model(folder, c.ModelDir, c.ModelNames()...)
		var missing *NotFoundError
		switch {
		case err == nil:
			e.ModelPath = path
			e.Env[pluginEnvPrefix+"MODEL"] = path
		case of.Model.Kind == manifest.Folder || !errors.As(err, &missing):
			return c.notFound(err)
		default:
			e.Env[pluginEnvPrefix+"MODEL"] = e.Model
		}
	}
	if of.Model.Checks && e.ModelSHA256 != "" {
		e.Env[pluginEnvPrefix+"MODEL_SHA256"] = e.ModelSHA256
	}
	if of.Library != nil {
		library := cmp.Or(c.Libraries[of.Library.Setting], e.Env[pluginEnvPrefix+of.Library.Variable])
		path, err := find.Library(of.Library, library)
		if err != nil {
			return err
		}
		e.Env[pluginEnvPrefix+of.Library.Variable] = path
	}
	if e.Threads != 0 {
		e.Env[pluginEnvPrefix+"THREADS"] = strconv.Itoa(e.Threads)
	}
	return nil
}

// Weights returns the file of the model folder that is loaded, and whose checksum can be pinned.
func (e *Embedder) Weights() string {
	file := ""
	for _, w := range manifest.For(e.Plugin).Model.Weights {
		file = w.File
		meant := true
		for variable, value := range w.Where {
			meant = meant && e.Env[pluginEnvPrefix+variable] == value
		}
		if _, err := os.Stat(filepath.Join(e.ModelPath, file)); meant && err == nil {
			break
		}
	}
	return file
}

// pluginName returns the name of a plugin that may be a path.
func pluginName(plugin string) string {
	if isPath(plugin) {
		return strings.TrimPrefix(filepath.Base(plugin), pluginPrefix)
	}
	return plugin
}

// ownVariable reports whether a variable with the prefix of plugins is one of our settings.
func ownVariable(name string) bool {
	return slices.ContainsFunc(Settings(), func(s Setting) bool { return s.Env() == name })
}

// pluginVariables returns the variables for a plugin. EMBEDSIDECAR_PLUGIN_TOY_... is only for the plugin toy; a plugin
// that replaces another (serving) gets that one's, too. Other variables with secrets go to no plugin, unless the
// plugin's catalog entry names them.
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

// knownPlugins returns the names of all plugins that this configuration may run.
func (c *Config) knownPlugins(find Finder, plugin string) []string {
	names := append(find.Plugins(c.Plugins.Dir), plugin, c.Plugins.Default)
	for _, of := range manifest.All() {
		if of.Prefix != "" {
			names = append(names, of.Name)
		}
	}
	return slices.Concat(names, lists.Map(c.Plugins.Catalog, func(p Plugin) string { return p.Name }),
		lists.Map(c.Models, func(m Model) string { return m.Plugin }),
		lists.Map(c.Pipelines, func(p pipeline.Spec) string { return p.Plugin }))
}

// variablesOf returns the prefix of a plugin's variables.
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

// variableOwner returns the longest prefix of a plugin's variables that a variable has; "": none.
func variableOwner(name string, plugins []string) string {
	longest := ""
	for _, plugin := range plugins {
		if own := variablesOf(plugin); len(own) > len(longest) && strings.HasPrefix(name, own) {
			longest = own
		}
	}
	return longest
}

// isSecret reports whether a variable holds a secret or the name of its file, by its name, or a URL with a password.
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
