package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// The groups of commands in the help text.
const (
	groupStart   = "Start"
	groupObserve = "Observe"
	groupOperate = "Operate"
	groupSearch  = "Search"
	groupAdmin   = "Administration"
)

// command is one command. Its run gets all settings merged and checked.
type command struct {
	name, usage, description string
	aliases                  []string
	group                    string
	arguments                string // for the help text: "PIPELINE TEXT"
	minArgs, maxArgs         int    // maxArgs < 0: any number
	flags                    []cli.Flag
	settings                 []string // groups of settings that matter here; the others are taken too, and hidden
	pipelines                bool     // the flags that describe pipelines matter here
	acts                     bool     // --yes and --dry-run matter here
	// works until told to stop: its log tells of life events, that of others of trouble only
	daemon bool
	// looks at what runs: a mistake in the settings, which only the next start will meet, does not count
	probe bool
	run   func(ctx context.Context, env *environment) error
}

var databaseGroups = []string{config.GroupDatabase}

// allFlags returns the command's own flags, then those that every command has. Every call makes the shared ones anew.
func (c *command) allFlags() []cli.Flag {
	return slices.Concat(c.flags, pipelineFlags(c.pipelines), settingFlags(c.settings), generalFlags(c.acts))
}

// generalFlags are flags that are no settings and that every command has.
func generalFlags(acts bool) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Category: groupGeneral, Usage: "`FILE` settings, in YAML"},
		&cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Category: groupGeneral,
			Usage: "`FORM` table, json, yaml or csv", DefaultText: "table",
		},
		&cli.DurationFlag{
			Name: "timeout", Category: groupGeneral, Usage: "`DURATION` give up after that, with status 5",
			DefaultText: "never",
		},
		&cli.StringFlag{
			Name: "color", Category: groupGeneral,
			Usage: "`WHEN` auto, always or never; NO_COLOR and TERM=dumb mean never", DefaultText: "auto",
		},
		&cli.BoolFlag{
			Name: "quiet", Aliases: []string{"q"}, Category: groupGeneral,
			Usage: "print nothing but data, warnings and errors", DisableDefaultText: true,
		},
		&cli.BoolFlag{
			Name: "verbose", Aliases: []string{"v"}, Category: groupGeneral, Usage: "log at level debug",
			DisableDefaultText: true,
		},
		&cli.BoolFlag{
			Name: "yes", Aliases: []string{"y"}, Category: groupGeneral, Hidden: !acts,
			Usage: "do what would otherwise only be shown", DisableDefaultText: true,
		},
		&cli.BoolFlag{
			Name: "dry-run", Category: groupGeneral, Hidden: !acts, Usage: "show what would be done and do nothing",
			DisableDefaultText: true,
		},
	}
}

// settingFlags makes a flag of every setting.
func settingFlags(visible []string) []cli.Flag {
	var flags []cli.Flag
	for _, s := range config.Settings() {
		hidden := !slices.Contains(visible, s.Group) && !strings.HasPrefix(s.Flag, "log-")
		if s.Placeholder == "" {
			flags = append(flags, &cli.BoolFlag{
				Name: s.Flag, Category: s.Group, Usage: s.Usage, DefaultText: s.Default(),
				Hidden: hidden,
			})
			continue
		}
		flags = append(flags, &cli.StringFlag{
			Name: s.Flag, Category: s.Group, Usage: "`" + s.Placeholder + "` " + s.Usage,
			DefaultText: s.Default(), Hidden: hidden,
		})
	}
	return flags
}

func pipelineFlags(visible bool) []cli.Flag {
	const category = config.GroupPipeline
	hide := !visible
	return []cli.Flag{
		&cli.StringFlag{
			Name: "table", Category: category, Hidden: hide,
			Usage: "`TABLE` whose rows are embedded: the short form for one pipeline",
		},
		&cli.StringSliceFlag{
			Name: "columns", Category: category, Hidden: hide,
			Usage: "`COLUMN,...` of --table that are embedded",
		},
		&cli.StringFlag{
			Name: "into", Category: category, Hidden: hide,
			Usage: "`COLUMN` vector column of --table for the vectors",
		},
		&cli.StringFlag{
			Name: "into-table", Category: category, Hidden: hide,
			Usage: "`TABLE` embedding table for the vectors, instead of --into",
		},
		&cli.StringFlag{
			Name: "into-type", Category: category, Hidden: hide, DefaultText: "as the model",
			Usage: "`vector|halfvec|bit|sparsevec` type of destinations that are to be made",
		},
		&cli.StringFlag{
			Name: "index", Category: category, Hidden: hide, DefaultText: "none",
			Usage: "`hnsw|none` index to build on destinations when their backfill is done",
		},
		&cli.StringSliceFlag{
			Name: "pipeline", Category: category, Hidden: hide,
			Usage: "`SPEC` the form for several, each with this flag: 'public.docs: title, body -> embedding' or '... -> table docs_embedding'; names are quoted as in SQL",
		},
		&cli.BoolFlag{
			Name: "overwrite", Category: category, Hidden: hide, DisableDefaultText: true,
			Usage: "take over a destination that holds vectors of somebody else",
		},
		&cli.StringSliceFlag{
			Name: "plugin-env", Category: config.GroupEmbedding, Hidden: hide,
			Usage: "`NAME=VALUE` variable EMBEDSIDECAR_PLUGIN_... for plugins; again for more",
		},
	}
}

// cli turns the command into one of the flag parser's.
func (c *command) cli(p *program) *cli.Command {
	return &cli.Command{
		Name: c.name, Aliases: c.aliases, Usage: c.usage, Description: c.description, Category: c.group,
		ArgsUsage:    c.arguments,
		Flags:        c.allFlags(),
		HideHelp:     true, // dispatch prints ours
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return fail(exitUsage, c.flagError(err)) },
		Action: func(cc *cli.Context) error {
			if err := c.countArgs(cc.Args().Slice()); err != nil {
				return err
			}
			return p.execute(cc, c)
		},
	}
}

func (c *command) countArgs(args []string) error {
	switch {
	case len(args) < c.minArgs:
		return misuse("%s wants %s: see embedsidecar help %s", c.name, c.arguments, c.name)
	case c.maxArgs >= 0 && len(args) > c.maxArgs:
		extra := args[c.maxArgs]
		if extra == "true" || extra == "false" {
			return fail(exitUsage, fmt.Errorf("unexpected argument %q", extra), "switches are written --flag or --flag="+extra)
		}
		if c.maxArgs == 0 && c.pipelines {
			return fail(exitUsage, fmt.Errorf("%s takes no arguments, but there is %q", c.name, extra),
				"a list has no blanks, or quotes around it: --columns title,body")
		}
		if c.maxArgs == 0 {
			return misuse("%s takes no arguments, but there is %q", c.name, extra)
		}
		return fail(exitUsage, fmt.Errorf("unexpected argument %q: %s takes %s", extra, c.name, c.arguments),
			"an argument with spaces needs quotes around it")
	}
	return nil
}

var badValue = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-+([\w-]+): `)

// flagError words a complaint of the flag parser as this program spells flags.
func (c *command) flagError(err error) error {
	m := badValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	want := "another value"
	for _, f := range c.allFlags() {
		if !slices.Contains(f.Names(), m[2]) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			want = "a duration such as 500ms, 30s or 5m"
		case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag:
			want = "a whole number"
		case *cli.BoolFlag:
			want = "true or false"
		}
	}
	return fmt.Errorf("%s: expected %s, not %s", dashed(m[2]), want, m[1])
}
