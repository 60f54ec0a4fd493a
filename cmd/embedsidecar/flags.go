package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// section makes the flags of one heading of help texts.
type section struct {
	heading string
	hidden  bool
}

// text is a flag with a value; absent says in words what its absence means.
func (s section) text(name, usage, absent string, aliases ...string) cli.Flag {
	return &cli.StringFlag{
		Name: name, Aliases: aliases, Category: s.heading, Hidden: s.hidden, Usage: usage, DefaultText: absent,
	}
}

// list is a flag that may be given more than once.
func (s section) list(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Category: s.heading, Hidden: s.hidden, Usage: usage}
}

// toggle is a flag without a value.
func (s section) toggle(name, usage, absent string, aliases ...string) cli.Flag {
	return &cli.BoolFlag{
		Name: name, Aliases: aliases, Category: s.heading, Hidden: s.hidden, Usage: usage, DefaultText: absent,
	}
}

// generalFlags are flags that are no settings and that every command has.
func generalFlags(acts bool) []cli.Flag {
	all, acting := section{groupGeneral, false}, section{groupGeneral, !acts}
	return []cli.Flag{
		all.text("config", "`FILE` settings, in YAML", "", "c"),
		all.text("output", "`FORM` table, json, yaml or csv", "table", "o"),
		&cli.DurationFlag{
			Name: "timeout", Category: groupGeneral, Usage: "`DURATION` give up after that, with status 5",
			DefaultText: "never",
		},
		all.text("color", "`WHEN` auto, always or never; NO_COLOR and TERM=dumb mean never", "auto"),
		all.toggle("quiet", "print nothing but data, warnings and errors", "", "q"),
		all.toggle("verbose", "log at level debug", "", "v"),
		acting.toggle("yes", "do what would otherwise only be shown", "", "y"),
		acting.toggle("dry-run", "show what would be done and do nothing", ""),
	}
}

// settingFlags makes a flag of every setting.
func settingFlags(visible, unused []string) []cli.Flag {
	var flags []cli.Flag
	for _, s := range config.Settings() {
		group := section{s.Group, !slices.Contains(visible, s.Group) && !strings.HasPrefix(s.Flag, "log-") ||
			slices.Contains(unused, s.Flag)}
		if s.Placeholder == "" {
			flags = append(flags, group.toggle(s.Flag, s.Usage, s.Default()))
		} else {
			flags = append(flags, group.text(s.Flag, "`"+s.Placeholder+"` "+s.Usage, s.Default()))
		}
	}
	return flags
}

func pipelineFlags(visible bool) []cli.Flag {
	of := section{config.GroupPipeline, !visible}
	return []cli.Flag{
		of.text("table", "`TABLE` whose rows are embedded: the short form for one pipeline", ""),
		of.list("columns", "`COLUMN,...` of --table that are embedded"),
		of.text("into", "`COLUMN` vector column of --table for the vectors", ""),
		of.text("into-table", "`TABLE` embedding table for the vectors, instead of --into", ""),
		of.text("into-type", "`vector|halfvec|bit|sparsevec` type of destinations that are to be made", "as the model"),
		of.text("index", "`hnsw|none` index to build on destinations when their backfill is done", "none"),
		of.list("pipeline", "`SPEC` the form for several, each with this flag: 'public.docs: title, body -> embedding' or '... -> table docs_embedding'; names are quoted as in SQL"),
		of.toggle("overwrite", "take over a destination that holds vectors of somebody else", ""),
		section{config.GroupEmbedding, !visible}.list("plugin-env",
			"`NAME=VALUE` variable EMBEDSIDECAR_PLUGIN_... for plugins; again for more"),
	}
}

// isSetting reports whether a flag's value is for the configuration, not for the program or a command.
func isSetting(f cli.Flag) bool {
	in, ok := f.(cli.CategorizableFlag)
	return ok && in.GetCategory() != "" && in.GetCategory() != groupGeneral
}

// known is what is known of a flag's name: its kind, which is the same everywhere, and the commands that have it.
type known struct {
	flag   cli.Flag // nil for help and version
	owners []*command
}

func (k *known) takesValue() bool {
	doc, ok := k.flag.(cli.DocGenerationFlag)
	return ok && doc.TakesValue()
}

// knownFlags returns every name of every flag of the commands.
func knownFlags(commands []*command) map[string]*known {
	names := map[string]*known{"help": {}, "h": {}, "version": {}}
	for _, c := range commands {
		for _, f := range c.allFlags() {
			for _, name := range f.Names() {
				if names[name] == nil {
					names[name] = &known{flag: f}
				}
				names[name].owners = append(names[name].owners, c)
			}
		}
	}
	return names
}
