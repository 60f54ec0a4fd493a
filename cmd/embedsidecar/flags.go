package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// section makes the flags below one heading of the help texts.
type section struct {
	heading string
	hidden  bool
}

// own makes the flags of a single command.
var own section

// A flag's name is followed by a comma and its short name, if any. into holds the default, which absent may describe.
// Without into the library keeps the value.

func (s section) text(name string, into *string, usage string, absent ...string) cli.Flag {
	name, aliases := names(name)
	return &cli.StringFlag{
		Name: name, Aliases: aliases, Category: s.heading, Hidden: s.hidden, Usage: usage,
		DefaultText: strings.Join(absent, ""), Destination: into, Value: held(into),
	}
}

// list is a flag that may be given more than once.
func (s section) list(name string, into *cli.StringSlice, usage string, absent ...string) cli.Flag {
	return &cli.StringSliceFlag{
		Name: name, Category: s.heading, Hidden: s.hidden, Usage: usage, DefaultText: strings.Join(absent, ""),
		Destination: into,
	}
}

// toggle is a flag without a value.
func (s section) toggle(name string, into *bool, usage string, absent ...string) cli.Flag {
	name, aliases := names(name)
	return &cli.BoolFlag{
		Name: name, Aliases: aliases, Category: s.heading, Hidden: s.hidden, Usage: usage,
		DefaultText: strings.Join(absent, ""), Destination: into,
	}
}

func (s section) number(name string, into *int, usage string, absent ...string) cli.Flag {
	name, aliases := names(name)
	return &cli.IntFlag{
		Name: name, Aliases: aliases, Category: s.heading, Usage: usage, DefaultText: strings.Join(absent, ""),
		Destination: into, Value: held(into),
	}
}

func (s section) duration(name string, into *time.Duration, usage string, absent ...string) cli.Flag {
	return &cli.DurationFlag{
		Name: name, Category: s.heading, Usage: usage, DefaultText: strings.Join(absent, ""),
		Destination: into, Value: held(into),
	}
}

func names(name string) (long string, short []string) {
	long, alias, ok := strings.Cut(name, ",")
	if ok {
		short = []string{alias}
	}
	return long, short
}

func held[T any](into *T) (value T) {
	if into != nil {
		value = *into
	}
	return value
}

// generalFlags returns the flags that are no settings and that every command has.
func generalFlags(acts bool) []cli.Flag {
	all := section{heading: groupGeneral}
	list := []cli.Flag{
		all.text("config,c", nil, "`FILE` settings, in YAML"),
		all.list("set", nil, "`KEY=VALUE` a setting, by its key in that file; may be given more than once"),
		all.text("output,o", nil, "`FORM` table, json, yaml or csv", "table"),
		all.duration("timeout", nil, "`DURATION` give up after this time, with status 5", "never"),
		all.text("color", nil, "`WHEN` auto, always or never; NO_COLOR and TERM=dumb mean never", "auto"),
		all.toggle("quiet,q", nil, "print nothing but data, warnings and errors"),
		all.toggle("verbose,v", nil, "log at level debug"),
	}
	if acts {
		list = append(list, all.toggle("yes,y", nil, "execute; without it, apply, roles and uninstall are a dry run, and quickstart asks"),
			all.toggle("dry-run", nil, "show what would be done and do nothing"))
	}
	return list
}

func settingFlags(visible, unused []string) []cli.Flag {
	var flags []cli.Flag
	for _, s := range config.Settings() {
		if s.Flag == "" {
			continue
		}
		group := section{s.Group, !slices.Contains(visible, s.Group) && !strings.HasPrefix(s.Flag, "log-") ||
			slices.Contains(unused, s.Flag)}
		if s.Path == "database.url" { // may be repeated, for several databases
			flags = append(flags, group.list(s.Flag, nil, "`"+s.Placeholder+"` "+s.Usage, s.Default()))
		} else if s.Placeholder == "" {
			flags = append(flags, group.toggle(s.Flag, nil, s.Usage, s.Default()))
		} else {
			flags = append(flags, group.text(s.Flag, nil, "`"+s.Placeholder+"` "+s.Usage, s.Default()))
		}
	}
	return flags
}

func pipelineFlags(visible bool) []cli.Flag {
	of := section{config.GroupPipeline, !visible}
	return []cli.Flag{
		of.text("table", nil, "`TABLE` table whose rows are embedded: the short form for one pipeline"),
		of.list("columns", nil, "`COLUMN,...` columns of --table to embed"),
		of.text("into", nil, "`COLUMN` vector column of --table for the vectors"),
		of.text("into-table", nil, "`TABLE` embedding table for the vectors, instead of --into"),
		of.text("index", nil, "`hnsw|ivfflat|none` index to build on destinations when their backfill is done", "none"),
		of.list("pipeline", nil, "`SPEC` the form for several, each with this flag: 'public.docs: title, body -> embedding' or '... -> table docs_embedding'; names are quoted as in SQL"),
		of.toggle("overwrite", nil, "take over a destination that holds vectors of someone else"),
	}
}

// described is a flag as help texts show it.
type described struct{ name, heading, term, usage string }

// visible returns the flags that are not hidden, with their form, value and usage.
func visible(flags []cli.Flag) (list []described) {
	for _, f := range flags {
		doc, ok := f.(interface {
			cli.DocGenerationFlag
			cli.CategorizableFlag
			cli.VisibleFlag
		})
		if !ok || !doc.IsVisible() {
			continue
		}
		var names []string
		for _, name := range slices.Backward(f.Names()) { // -c, --config
			names = append(names, dashed(name))
		}
		term, usage := strings.Join(names, ", "), doc.GetUsage()
		if rest, ok := strings.CutPrefix(usage, "`"); ok {
			var placeholder string
			placeholder, usage, _ = strings.Cut(rest, "` ")
			term += " " + placeholder
		}
		if value := doc.GetDefaultText(); value != "" && value != `""` && value != "false" {
			usage += fmt.Sprintf(" (default %s)", strings.Trim(value, `"`))
		}
		list = append(list, described{f.Names()[0], doc.GetCategory(), term, usage})
	}
	return list
}

// isSetting reports whether a flag is for the configuration, not for the program or a command.
func isSetting(f cli.Flag) bool {
	in, ok := f.(cli.CategorizableFlag)
	return f.Names()[0] == "set" || ok && in.GetCategory() != "" && in.GetCategory() != groupGeneral
}

// known describes a flag name: its kind, which is the same everywhere, and the commands that have it.
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

// databaseFlag chooses among several databases.
func databaseFlag() cli.Flag {
	return section{heading: groupGeneral}.list("database", nil,
		"`NAME` name of the database, if several are configured; a pattern such as 'tenant_*', or again for more")
}
