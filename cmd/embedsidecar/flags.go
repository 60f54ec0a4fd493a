package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

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
func settingFlags(visible, unused []string) []cli.Flag {
	var flags []cli.Flag
	for _, s := range config.Settings() {
		hidden := !slices.Contains(visible, s.Group) && !strings.HasPrefix(s.Flag, "log-") ||
			slices.Contains(unused, s.Flag)
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
