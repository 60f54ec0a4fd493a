package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// models is the models that can be named.
func (e *environment) models() folders.Folders { return folders.Of(e.embedders()) }

// model is the model of the arguments, "" for the default one.
func (e *environment) model() string {
	if len(e.args) == 0 {
		return ""
	}
	return e.args[0]
}

func newModelsList() *command {
	return &command{
		name: "list", group: groupModels, usage: "list the models that can be named",
		description: "Lists model folders of --model-dir or, without it, of the usual places, and the models of the " +
			"configuration. Does not verify files: models verify does. For choosing a model.",
		settings: []string{config.GroupEmbedding},
		run: func(_ context.Context, env *environment) error {
			list := env.models().List()
			columns := []string{"name", "type", "tokenizer", ">dims", "int8", ">size", "path", "problem"}
			return env.out.Show(list, func() output.Table {
				return output.Rows(list, columns, func(m *models.Info) []any {
					return []any{
						m.Name, m.Type, m.Tokenizer, m.Dims, yesNo(m.Int8), humanize.IBytes(uint64(max(m.Bytes, 0))), m.Path,
						m.Problem,
					}
				})
			})
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func newModelsShow() *command {
	return &command{
		name: "show", group: groupModels, usage: "describe a model", arguments: "[MODEL]", maxArgs: 1,
		description: "Opens the model with the plugin " +
			folders.Plugin() +
			" and the settings of the configuration, and prints its description. For a model with int8 weights, " +
			"it also prints how near their vectors are to those in 32 bits: the mean and the smallest cosine of " +
			"some texts (for a sparse model, the inner product divided by the square of the longer one's " +
			"length). For checking pooling, prefixes and limits before a backfill.",
		settings: []string{config.GroupEmbedding},
		run:      showModel,
	}
}

func showModel(ctx context.Context, env *environment) error {
	shown, err := env.models().Show(ctx, env.model())
	if err != nil {
		return err
	}
	return env.out.Show(shown, func() output.Table {
		t := output.Table{Columns: []string{"setting", "value"}, Rows: [][]any{
			{"name", shown.Name},
			{"path", shown.Path},
			{"type", shown.Type},
			{"tokenizer", shown.Tokenizer},
			{"dims", shown.VectorDims},
			{"max tokens", shown.MaxTokens},
			{"size", humanize.IBytes(uint64(max(shown.Bytes, 0)))},
			{"sha256 of weights", shown.SHA256},
			{"fingerprint", shown.Fingerprint},
			{"deterministic", yesNo(shown.Deterministic)},
		}}
		for _, s := range shown.Settings {
			t.Rows = append(t.Rows, []any{s.Name, settingWords(s)})
		}
		if shown.Int8Likeness != nil {
			t.Rows = append(t.Rows, []any{"int8 beside fp32", shown.Int8Likeness})
		}
		return t
	})
}

func newModelsVerify() *command {
	return &command{
		name: "verify", group: groupModels, usage: "compare the files of models with their SHA256SUMS",
		arguments: "[MODEL]", maxArgs: 1,
		description: "Reads every file of the model, or of all models that can be named. Ends with status 4 if one is " +
			"missing, damaged or not listed. For checking a copied folder.",
		settings: []string{config.GroupEmbedding},
		run:      verifyModels,
	}
}

func verifyModels(ctx context.Context, env *environment) error {
	list, err := env.models().Verify(ctx, env.args)
	if list == nil {
		return err
	}
	return cmp.Or(env.out.Show(list, func() output.Table {
		return output.Rows(list, []string{"model", "ok", "problems"}, func(v *folders.Verified) []any {
			return []any{v.Path, yesNo(v.OK), strings.Join(v.Problems, "; ")}
		})
	}), err)
}

func newModelsImport() *command {
	c := &importCommand{python: "python3"}
	return &command{
		name: "import", group: groupModels, usage: "make a model folder from published files", arguments: "DIR",
		minArgs: 1, maxArgs: 1,
		description: "Takes a folder as models are published (config.json, tokenizer.json, model.safetensors or " +
			"model.onnx, and their settings), makes model.onnx from the weights if there is none (with Python " +
			"3.8 or newer and nothing else), writes SHA256SUMS, tries the model with the plugin " +
			folders.Plugin() +
			", and moves it into place. For models on disk.",
		flags:    c.flags(),
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

// importCommand makes a model folder.
type importCommand struct {
	name, python  string
	file          string
	int8, untried bool
	stated        models.Stated
	prefixes      [2]string // of a document and of a query
}

func (c *importCommand) flags() []cli.Flag {
	return []cli.Flag{
		own.text("name", &c.name, "`NAME` of the new model (default: that of the folder)"),
		own.toggle("int8", &c.int8,
			"make model_int8.onnx too: about twice as fast, for vectors that differ; how much is measured and printed"),
		own.text("file", &c.file, "`FILE` with the weights, where there are several: onnx/model_quantized.onnx",
			"the most exact"),
		own.text("python", &c.python, "`PROGRAM` Python, which makes ONNX from weights"),
		own.toggle("untried", &c.untried, "do not open the model with the plugin "+folders.Plugin()),
		own.text("pooling", &c.stated.Pooling,
			"`WAY` in which tokens become one vector, if no file states it: mean, cls, last, max, weightedmean, mean_sqrt_len, splade"),
		own.text("document-prefix", &c.prefixes[0], "`TEXT` put before each document, if no file states it"),
		own.text("query-prefix", &c.prefixes[1], "`TEXT` put before each query, if no file states it"),
		own.number("max-tokens", &c.stated.MaxTokens, "most `TOKENS` that are read of a text: fewer take less memory",
			"what the model was made for, at most 2048"),
	}
}

func (c *importCommand) run(ctx context.Context, env *environment) error {
	done, err := env.models().Import(ctx, env.args[0], c.options(env))
	if err != nil {
		return err
	}
	return showImported(env, done)
}

func (c *importCommand) options(env *environment) folders.New {
	if c.prefixes[0] != "" {
		c.stated.DocumentPrefix = &c.prefixes[0]
	}
	if c.prefixes[1] != "" {
		c.stated.QueryPrefix = &c.prefixes[1]
	}
	return folders.New{
		Stated: c.stated, File: c.file,
		Name: c.name, Python: c.python, Int8: c.int8, Untried: c.untried,
		Say: func(what string) { env.say("%s", what) },
	}
}

// settingWords quotes a value, so that a blank at its end is seen; what a card says is quoted already.
func settingWords(s embed.Setting) string {
	if s.Name == "card" {
		return fmt.Sprintf("%s (%s)", s.Value, s.Source)
	}
	return fmt.Sprintf("%q (%s)", s.Value, s.Source)
}

func showImported(env *environment, done folders.Imported) error {
	for _, s := range done.Settings {
		env.say("%s: %s", s.Name, settingWords(s))
	}
	return env.out.Show(done, func() output.Table {
		columns, row := []string{"model", "path", "outcome"}, []any{done.Name, done.Path, "imported"}
		if done.Already {
			row[2] = "was there already"
		}
		if done.Int8Likeness != nil {
			columns, row = append(columns, "int8 beside fp32"), append(row, *done.Int8Likeness)
		}
		return output.Row(columns, row...)
	})
}
