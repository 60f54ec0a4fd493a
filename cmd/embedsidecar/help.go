package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// The order of headings in help texts.
var (
	commandGroups = []string{
		groupStart, groupObserve, groupOperate, groupSearch, groupPlugins, groupModels, groupConfig, groupAdmin,
		groupTool,
	}
	flagGroups = []string{
		"", config.GroupPipeline, config.GroupDatabase, config.GroupEmbedding, config.GroupWork,
		config.GroupQueries, config.GroupOps, groupGeneral,
	}
)

const (
	groupGeneral = "General"
	helpWidth    = 110
	helpIndent   = 28 // where explanations begin
)

// programHelp is the text of embedsidecar --help.
func programHelp(commands []*command) string {
	var b strings.Builder
	b.WriteString("embedsidecar keeps vectors in Postgres true to the rows they were made of.\n\n" +
		"  embedsidecar COMMAND [flags] [arguments]\n" +
		"  embedsidecar run --database-url URL --table public.docs --columns title,body --into embedding\n")
	for _, group := range commandGroups {
		var entries strings.Builder
		for _, c := range commands {
			if c.group == group {
				entry(&entries, strings.Join(append([]string{c.path()}, c.aliases...), ", "), c.usage)
			}
		}
		if entries.Len() > 0 {
			fmt.Fprintf(&b, "\n%s:\n%s", group, entries.String())
		}
	}
	b.WriteByte('\n')
	b.WriteString(fill(helpOfFlags, 0) + "\n\n" + fill(helpOfStatuses, 0) + "\n")
	return b.String()
}

const (
	helpOfFlags = "embedsidecar help COMMAND tells about a command and its flags. Flags may stand before the command, after it and " +
		"behind arguments. Each can also be set by a variable: EMBEDSIDECAR_ and its name, as in EMBEDSIDECAR_DATABASE_URL. Flags win " +
		"over variables, these over the file of --config, and that over the defaults. What a connection string leaves out comes from " +
		"the PG* variables, the service file and the password file."
	helpOfStatuses = "Exit status: 0 done, 1 internal error, 2 usage or configuration, 3 not set up, 4 checks failed, 5 not in time, " +
		"6 no connection, 7 not permitted, 8 held by somebody else, 9 nothing matched, 130 interrupted."
)

// familyHelp is the text of embedsidecar help FAMILY.
func (c *command) familyHelp() string {
	var b strings.Builder
	fmt.Fprintf(&b, "embedsidecar %s COMMAND [flags] [arguments]\n\n", c.name)
	for _, m := range c.members {
		entry(&b, strings.TrimSpace(m.path()+" "+m.arguments), m.usage)
	}
	fmt.Fprintf(&b, "\nembedsidecar help %s COMMAND tells more.\n", c.name)
	return b.String()
}

// help is the text of embedsidecar help COMMAND, for a family and the program as well.
func (c *command) help() string {
	switch {
	case c.name == "":
		return programHelp(leaves(c.members))
	case len(c.members) > 0:
		return c.familyHelp()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "embedsidecar %s: %s\n\n  embedsidecar %s [flags]", c.path(), c.usage, c.path())
	if c.arguments != "" {
		b.WriteString(" " + c.arguments)
	}
	b.WriteByte('\n')
	if len(c.aliases) > 0 {
		fmt.Fprintf(&b, "  also called %s\n", strings.Join(c.aliases, ", "))
	}
	if c.description != "" {
		fmt.Fprintf(&b, "\n%s\n", fill(c.description, 0))
	}
	flags := c.allFlags()
	for _, group := range flagGroups {
		var section strings.Builder
		for _, f := range flags {
			describeFlag(&section, f, group)
		}
		if section.Len() == 0 {
			continue
		}
		if group == "" {
			group = "Flags"
		}
		fmt.Fprintf(&b, "\n%s:\n%s", group, section.String())
	}
	return b.String()
}

// describeFlag writes a flag's line if the flag belongs to the group and is not hidden.
func describeFlag(b *strings.Builder, f cli.Flag, group string) {
	doc, ok := f.(interface {
		cli.DocGenerationFlag
		cli.CategorizableFlag
		cli.VisibleFlag
	})
	if !ok || doc.GetCategory() != group || !doc.IsVisible() {
		return
	}
	term, usage := flagTerm(f)
	entry(b, term, usage)
}

// flagTerm returns how a flag is written, with its value, and what it does.
func flagTerm(f cli.Flag) (term, usage string) {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return "", ""
	}
	var names []string
	for _, name := range slices.Backward(f.Names()) { // -c, --config
		names = append(names, dashed(name))
	}
	placeholder, usage := "", doc.GetUsage()
	if rest, ok := strings.CutPrefix(usage, "`"); ok {
		placeholder, usage, _ = strings.Cut(rest, "` ")
		placeholder = " " + placeholder
	}
	if value := doc.GetDefaultText(); value != "" && value != `""` && value != "false" {
		usage += fmt.Sprintf(" (default %s)", strings.Trim(value, `"`))
	}
	return strings.Join(names, ", ") + placeholder, usage
}

// entry writes a term and its explanation beside it, or below where the term is long.
func entry(b *strings.Builder, term, explanation string) {
	const margin = 2
	b.WriteString("  " + term)
	if room := helpIndent - margin - len(term); room > 1 {
		b.WriteString(strings.Repeat(" ", room))
	} else {
		b.WriteString("\n" + strings.Repeat(" ", helpIndent))
	}
	b.WriteString(fill(explanation, helpIndent))
	b.WriteByte('\n')
}

// fill breaks a text into lines; all but the first are indented.
func fill(s string, indent int) string {
	lines := strings.Split(text.WrapSoft(s, helpWidth-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}
