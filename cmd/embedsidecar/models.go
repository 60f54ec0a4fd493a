package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// models returns the models that can be named.
func (e *environment) models() folders.Folders { return folders.Of(e.embedders()) }

// model returns the model argument; "": the default model.
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
			columns := []string{"name", "type", "tokenizer", ">dims", "int8", "reranker", ">size", "path", "problem"}
			return output.Each(env.out, list, list, columns, func(m *models.Info) []any {
				return []any{
					m.Name, m.Type, m.Tokenizer, m.Dims, yesNo(m.Int8), yesNo(m.Reranks), humanize.IBytes(uint64(max(m.Bytes, 0))),
					m.Path, m.Problem,
				}
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
		description: "Opens the model with its plugin and the settings of the configuration, and prints its " +
			"description. For a model with int8 weights, it also prints how near their vectors are to those in 32 " +
			"bits: the mean and the smallest cosine of some texts (for a sparse model, the inner product divided by the square of the longer one's " +
			"length). For checking pooling, prefixes and limits before a backfill.",
		settings: []string{config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) error {
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
		},
	}
}

func newModelsVerify() *command {
	return &command{
		name: "verify", group: groupModels, usage: "compare the files of models with their SHA256SUMS",
		arguments: "[MODEL]", maxArgs: 1,
		description: "Reads every file of the model, or of all models that can be named. Ends with status 4 if one is " +
			"missing, damaged or not listed. For checking a copied folder.",
		settings: []string{config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) error {
			list, err := env.models().Verify(ctx, env.args)
			if list == nil {
				return err
			}
			columns := []string{"model", "ok", "problems"}
			return cmp.Or(output.Each(env.out, list, list, columns, func(v *folders.Verified) []any {
				return []any{v.Path, yesNo(v.OK), strings.Join(v.Problems, "; ")}
			}), err)
		},
	}
}

func newModelsImport() *command {
	c := newImport()
	return &command{
		name: "import", group: groupModels, usage: "make a model folder from published files", arguments: "DIR",
		minArgs: 1, maxArgs: 1,
		description: "Takes a folder as models are published (config.json, tokenizer.json, model.safetensors or " +
			"model.onnx, and their settings), makes model.onnx from the weights if there is none (with Python " +
			"3.8 or newer and nothing else), writes SHA256SUMS, tries the model with its plugin, and moves it into " +
			"place. For models on disk.",
		flags:    c.flags(),
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

// importCommand makes a model folder.
type importCommand struct {
	model    folders.New
	prefixes [2]string // of a document and of a query
}

func newImport() importCommand {
	return importCommand{model: folders.New{ImportOptions: models.ImportOptions{Python: "python3"}}}
}

func (c *importCommand) flags() []cli.Flag {
	return []cli.Flag{
		own.text("name", &c.model.Name, "`NAME` name of the new model (default: that of the folder)"),
		own.toggle("int8", &c.model.Int8,
			"make model_int8.onnx too: about twice as fast, for vectors that differ; how much is measured and printed"),
		own.text("file", &c.model.File, "`FILE` file with the weights, if there are several: onnx/model_quantized.onnx",
			"the most exact"),
		own.text("python", &c.model.Python, "`PROGRAM` Python, which converts weights to ONNX"),
		own.toggle("untried", &c.model.Untried, "do not open the model with its plugin"),
		own.text("pooling", &c.model.Pooling,
			"`WAY` how tokens become one vector, if no file states it: mean, cls, last, max, weightedmean, mean_sqrt_len, splade"),
		own.text("document-prefix", &c.prefixes[0], "`TEXT` put before each document, if no file states it"),
		own.text("query-prefix", &c.prefixes[1], "`TEXT` put before each query, if no file states it"),
		own.number("max-tokens", &c.model.MaxTokens, "most `TOKENS` that are read of a text: fewer take less memory",
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
		c.model.DocumentPrefix = &c.prefixes[0]
	}
	if c.prefixes[1] != "" {
		c.model.QueryPrefix = &c.prefixes[1]
	}
	c.model.Say = func(what string) { env.say("%s", what) }
	return c.model
}

// settingWords quotes a value, so that trailing blanks are visible. The values of a card are already quoted.
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
	columns, row := []string{"model", "path", "outcome"}, []any{done.Name, done.Path, "imported"}
	if done.Already {
		row[2] = "was there already"
	}
	if done.Int8Likeness != nil {
		columns, row = append(columns, "int8 beside fp32"), append(row, *done.Int8Likeness)
	}
	return output.One(env.out, done, columns, row...)
}

func newModelsDistill() *command {
	out, dims := "", 0
	return &command{
		name: "distill", group: groupModels, usage: "make a static model from a model",
		arguments: "[MODEL]", maxArgs: 1,
		description: "Sends each token of the model's vocabulary through the model once and keeps the vectors in a " +
			"table, which the plugin static reads: hundreds of times as fast, without ONNX Runtime, but with " +
			"worse search results. How much worse is measured and printed. Takes a few minutes for the default " +
			"model. For a first try with many rows, and for machines without the power for an encoder.",
		flags: []cli.Flag{
			own.text("out", &out, "`DIR` folder of the new model, which must not exist yet",
				"beside the other models, with -static behind the name"),
			own.number("dims", &dims, "`DIMS` dimensions of the new vectors, at most those of the model", "256, or as many"),
		},
		settings: []string{config.GroupEmbedding},
		run:      func(ctx context.Context, env *environment) error { return distill(ctx, env, out, dims) },
	}
}

func distill(ctx context.Context, env *environment, out string, dims int) error {
	if dims < 0 {
		return misuse("--dims: expected a number above 0")
	}
	told := time.Now()
	done, err := env.models().Distill(ctx, env.model(), out, dims, func(done, total int) {
		if done == 0 {
			env.say("embedding %d tokens", total)
		} else if time.Since(told) > 15*time.Second {
			told = time.Now()
			env.say("%d of %d tokens", done, total)
		}
	})
	if err != nil {
		return err
	}
	columns := []string{"model", "path", "teacher", ">dims", "agreement with the teacher", ">seconds"}
	return output.One(env.out, done, columns, done.Name, done.Path, done.Teacher, done.Dims, done.Agreement,
		fmt.Sprintf("%.0f", done.Seconds))
}

// pullCommand downloads a model from a hub and imports it.
type pullCommand struct {
	importCommand

	source    folders.Source
	tokenFile string
}

func newModelsPull() *command {
	c := &pullCommand{
		importCommand: newImport(), source: folders.Source{PullOptions: models.PullOptions{Hub: "https://huggingface.co"}},
	}
	return &command{
		name: "pull", group: groupModels, usage: "download a model from a hub and import it", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "Downloads AUTHOR/MODEL from the hub and makes a model folder from it, as models import does. " +
			"Downloads are checked against pins: --sha256 (the weights), --sums (all files), the sums that this " +
			"program has for its default model, and those of the first pull. An interrupted download is resumed " +
			"by the next pull; the folder is in place only when it is complete. For models that are not on disk.",
		flags: append(c.flags(),
			own.text("hub", &c.source.Hub, "`URL` address of the hub"),
			own.text("revision", &c.source.Revision,
				"`REVISION` revision of the model (main, or the one that this program has pinned for the model)"),
			own.text("sha256", &c.source.SHA256, "`HEX` SHA-256 of the weights: model.safetensors, or onnx/model.onnx"),
			own.text("sums", &c.source.Sums, "`FILE` file in the form of SHA256SUMS with the files to download and their sums"),
			own.text("token-file", &c.tokenFile, "`FILE` file with a token of the hub, for models that require one"),
			own.toggle("unpinned", &c.source.Unpinned, "accept the first download without a pin, and print the sums"),
		),
		settings: []string{config.GroupEmbedding},
		run:      c.pull,
	}
}

func (c *pullCommand) pull(ctx context.Context, env *environment) error {
	var err error
	if c.source.Token, err = readToken(c.tokenFile); err != nil {
		return err
	}
	c.source.Name, c.source.File, c.source.Log = env.args[0], c.model.File, env.log
	download, err := env.models().Download(c.source)
	if err != nil {
		return err
	}
	finished, shown := func() {}, !env.quiet && output.IsTerminal(env.stderr)
	if shown {
		download.Progress, finished = output.Bars(env.stderr, env.out.Color)
	}
	sums, err := download.Fetch(ctx)
	finished()
	if err != nil {
		return err
	}
	if !shown {
		env.say("fetched %d files of %s", len(sums), download.Name)
	}
	if c.source.Unpinned {
		env.say("%s", strings.TrimSpace(sums.String()))
	}
	done, err := download.Import(ctx, c.options(env))
	if done.Path != "" {
		err = errors.Join(showImported(env, done), err)
	}
	return err
}

// readToken reads a token from a file. Without a file there is no token.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", misuse("--token-file: %s", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", misuse("--token-file: %s does not hold one token in one line", name)
	}
	return token, nil
}
