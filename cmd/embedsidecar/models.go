package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/models"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// folderPlugin is the plugin that model folders are for.
func folderPlugin() string { return manifest.OfFolders().Name }

// modelFolders are where models are looked for by name.
func (e *environment) modelFolders() []string { return e.find.Models(e.config.ModelDir) }

// modelHome is where new models go.
func (e *environment) modelHome() (string, error) {
	if e.config.ModelDir != "" {
		return filepath.Abs(e.config.ModelDir)
	}
	if e.find.Cache == "" {
		return "", fail(exitUsage, errors.New(
			"there is no folder for models: neither --model-dir nor HOME nor XDG_CACHE_HOME is set"))
	}
	return filepath.Join(e.find.Cache, "models"), nil
}

// knownModel is a model as the user knows it.
type knownModel struct {
	name   string // that of the configuration, or that of its folder
	folder string
	// what openModel wants: the name of a model that the configuration lists, whose settings then count, or else the
	// folder
	ref string
}

// modelNamed returns the model that was given by name or as a path, or the default one.
func (e *environment) modelNamed() (m knownModel, err error) {
	name := e.config.DefaultModel
	if len(e.args) > 0 {
		name = e.args[0]
	}
	if name == "" {
		name = manifest.OfFolders().Model.Default
	}
	listed := slices.ContainsFunc(e.config.Models, func(m config.Model) bool { return m.Name == name })
	if listed {
		found, err := e.config.Embedder(e.find, folderPlugin(), name)
		return knownModel{name: name, folder: found.ModelPath, ref: name}, err
	}
	folder, err := e.find.Model(name, e.config.ModelDir, e.config.ModelNames()...)
	return knownModel{name: filepath.Base(folder), folder: folder, ref: folder}, err
}

// openModel returns the plugin of model folders with a model, by its name in the configuration or by its folder. It
// is started at its first use. The caller closes it.
func (e *environment) openModel(ref, precision string) (*host.Host, error) {
	found, err := e.config.Embedder(e.find, folderPlugin(), ref)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(found.Env)
	if precision != "" {
		env["EMBEDSIDECAR_PLUGIN_PRECISION"] = precision
	}
	h, err := host.New(host.Options{
		Name: found.Plugin, Path: found.PluginPath, SHA256: found.PluginSHA256, Env: env,
		Log: e.log, Redact: e.redact.Text,
	})
	if err != nil {
		return nil, fail(exitUsage, err)
	}
	return h, nil
}

func newModelsList() *command {
	return &command{
		name: "list", group: groupModels, usage: "show the models that are found by name",
		description: "Lists model folders of --model-dir or, without it, of the usual places, and the models of the configuration. Their files are not verified: models verify does that.",
		settings:    []string{config.GroupEmbedding},
		run: func(_ context.Context, env *environment) error {
			list := env.withConfigured(models.List(env.modelFolders()))
			return env.show(list, func() listing {
				l := listing{
					header: []string{"name", "type", "tokenizer", "dims", "int8", "size", "path", "problem"},
					right:  []int{3, 5},
				}
				for _, m := range list {
					l.rows = append(l.rows, []any{
						m.Name, m.Type, m.Tokenizer, m.Dims, yesNo(m.Int8),
						humanize.IBytes(uint64(max(m.Bytes, 0))), m.Path, m.Problem,
					})
				}
				return l
			})
		},
	}
}

// withConfigured adds the models that the configuration names, with what their folder or their plugin is.
func (e *environment) withConfigured(list []models.Info) []models.Info {
	for _, m := range e.config.Models {
		if slices.ContainsFunc(list, func(i models.Info) bool { return i.Name == m.Name }) {
			continue
		}
		plugin := m.Plugin
		if plugin == "" {
			plugin = e.config.Plugins.Default
		}
		info := models.Info{Type: "plugin " + plugin, Files: []string{}}
		if found, err := e.config.Embedder(e.find, plugin, m.Name); err != nil {
			info.Problem = strings.Join(strings.Fields(err.Error()), " ")
		} else if found.ModelPath != "" {
			info = models.Describe(found.ModelPath)
		}
		info.Name = m.Name
		if dims := m.Settings.Dims(); dims > 0 {
			info.Dims = dims
		}
		list = append(list, info)
	}
	return list
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// shownModel is what models show prints.
type shownModel struct {
	models.Info
	Fingerprint string `json:"fingerprint,omitempty"`
	VectorDims  int    `json:"vector_dims,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
	// Deterministic: a text's vector is the same whatever it is embedded with, measured on this machine.
	Deterministic bool             `json:"deterministic,omitempty"`
	Int8Likeness  *models.Likeness `json:"int8_likeness,omitempty"`
}

func newModelsShow() *command {
	return &command{
		name: "show", group: groupModels, usage: "tell what a model is", arguments: "[MODEL]", maxArgs: 1,
		description: "Opens the model with the plugin " + folderPlugin() +
			" and the settings of the configuration, and prints what it says of itself. Of a model with int8 weights besides, it also prints how near their vectors come to those in 32 bits: the mean and the least cosine of some texts (of a sparse model, the inner product by the square of the longer one's length).",
		settings: []string{config.GroupEmbedding},
		run:      showModel,
	}
}

func showModel(ctx context.Context, env *environment) error {
	m, err := env.modelNamed()
	if err != nil {
		return err
	}
	shown := shownModel{Info: models.Describe(m.folder)}
	shown.Name = m.name
	h, err := env.openModel(m.ref, "")
	if err != nil {
		return err
	}
	about, err := h.Describe(ctx)
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	shown.Fingerprint, shown.VectorDims, shown.MaxTokens, shown.Deterministic = about.Fingerprint, about.Dims,
		about.MaxTokens, about.Deterministic
	if shown.Int8 {
		likeness, err := env.compareInt8(ctx, m.ref)
		if err != nil {
			return err
		}
		shown.Int8Likeness = &likeness
	}
	return env.show(shown, func() listing {
		l := listing{header: []string{"setting", "value"}, rows: [][]any{
			{"name", shown.Name},
			{"path", shown.Path},
			{"type", shown.Type},
			{"tokenizer", shown.Tokenizer},
			{"dims", shown.VectorDims},
			{"max tokens", shown.MaxTokens},
			{"size", humanize.IBytes(uint64(max(shown.Bytes, 0)))},
			{"sha256 of model.onnx", shown.SHA256},
			{"fingerprint", shown.Fingerprint},
			{"deterministic", yesNo(shown.Deterministic)},
		}}
		if shown.Int8Likeness != nil {
			l.rows = append(l.rows, []any{"int8 beside fp32", shown.Int8Likeness})
		}
		return l
	})
}

func newModelsVerify() *command {
	return &command{
		name: "verify", group: groupModels, usage: "compare the files of models with their SHA256SUMS",
		arguments: "[MODEL]", maxArgs: 1,
		description: "Reads every file of the model, or of all models that are found by name, and ends with status 4 when one is missing, damaged or not listed.",
		settings:    []string{config.GroupEmbedding},
		run:         verifyModels,
	}
}

func verifyModels(ctx context.Context, env *environment) error {
	var folders []string
	if len(env.args) > 0 {
		m, err := env.modelNamed()
		if err != nil {
			return err
		}
		folders = append(folders, m.folder)
	} else {
		for _, m := range models.List(env.modelFolders()) {
			folders = append(folders, m.Path)
		}
	}
	type verified struct {
		Path     string   `json:"path"`
		OK       bool     `json:"ok"`
		Problems []string `json:"problems"`
	}
	list, bad := []verified{}, 0
	for _, folder := range folders {
		problems, err := models.Verify(ctx, folder)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			problems = append(problems, err.Error())
		}
		if len(problems) > 0 {
			bad++
		}
		list = append(list, verified{folder, len(problems) == 0, problems})
	}
	err := env.show(list, func() listing {
		l := listing{header: []string{"model", "ok", "problems"}}
		for _, v := range list {
			l.rows = append(l.rows, []any{v.Path, yesNo(v.OK), strings.Join(v.Problems, "; ")})
		}
		return l
	})
	if err == nil && bad > 0 {
		err = fail(exitFailed, fmt.Errorf("%d of %d models are not what their %s say", bad, len(list), models.SumsFile),
			"import or pull them again")
	}
	return err
}

func newModelsImport() *command {
	c := &importCommand{}
	return &command{
		name: "import", group: groupModels, usage: "make a model folder of published files", arguments: "DIR",
		minArgs: 1, maxArgs: 1,
		description: "Takes a folder as models are published (config.json, tokenizer.json, model.safetensors or model.onnx, and their settings), makes model.onnx of the weights when there is none (with Python 3.8 or newer and nothing else), writes SHA256SUMS, tries the model with the plugin " + folderPlugin() + ", and puts it among the models in one step.",
		flags:       c.flags(),
		settings:    []string{config.GroupEmbedding},
		run:         func(ctx context.Context, env *environment) error { return c.run(ctx, env, env.args[0]) },
	}
}

// importCommand makes a model folder.
type importCommand struct {
	fetched models.Sums // what the files of the folder must be; nil: what they are

	name, python  string
	int8, untried bool
}

func (c *importCommand) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Destination: &c.name, Usage: "`NAME` of the new model (default: that of the folder)"},
		&cli.BoolFlag{
			Name: "int8", Destination: &c.int8, DisableDefaultText: true,
			Usage: "make model_int8.onnx too: about twice as fast, for vectors that differ; how much is measured and printed",
		},
		&cli.StringFlag{
			Name: "python", Destination: &c.python, Value: "python3",
			Usage: "`PROGRAM` that makes ONNX of weights",
		},
		&cli.BoolFlag{
			Name: "untried", Destination: &c.untried, DisableDefaultText: true,
			Usage: "do not open the model with the plugin " + folderPlugin(),
		},
	}
}
