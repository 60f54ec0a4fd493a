package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// The order of headings in help texts.
var (
	commandGroups = []string{groupStart, groupObserve, groupOperate, groupSearch, groupPlugins, groupModels, groupAdmin}
	flagGroups    = []string{
		"", config.GroupPipeline, config.GroupDatabase, config.GroupEmbedding, config.GroupWork,
		config.GroupQueries, config.GroupOps, groupGeneral,
	}
)

const (
	groupGeneral = "General"
	helpWidth    = 110
	helpIndent   = 28 // where explanations begin
)

// help prints what a person asked for with the words behind help.
func (p *program) help(words []string) error {
	if slices.Equal(words, []string{"help"}) {
		words = nil
	}
	found, rest := p.root().lookup(words)
	if len(rest) > 1 || len(rest) == 1 && len(found.members) == 0 {
		return misuse("help takes one command, not %d", len(words))
	}
	return p.helpOf(found, rest)
}

// helpOf prints the help of a command, of a family or of the program, to standard output. rest are words that it does
// not know.
func (p *program) helpOf(c *command, rest []string) error {
	var text string
	switch {
	case len(rest) > 0:
		return c.choose(rest)
	case c.name == "":
		text = programHelp(leaves(p.commands))
	case len(c.members) > 0:
		text = c.familyHelp()
	default:
		text = c.help()
	}
	_, err := io.WriteString(p.stdout, text)
	return err
}

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
	b.WriteString(fill("embedsidecar help COMMAND tells about a command and its flags. Flags may stand before the command, after it and "+
		"behind arguments. Each can also be set by a variable: EMBEDSIDECAR_ and its name, as in EMBEDSIDECAR_DATABASE_URL. Flags win "+
		"over variables, these over the file of --config, and that over the defaults. What a connection string leaves out comes from "+
		"the PG* variables, the service file and the password file.", 0))
	b.WriteString("\n\nExit status: 0 done, 1 internal error, 2 usage or configuration, 3 not set up, 4 checks failed, 5 not in time,\n" +
		"6 no connection, 7 not permitted, 8 held by somebody else, 9 nothing matched, 130 interrupted.\n")
	return b.String()
}

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

// help is the text of embedsidecar help COMMAND.
func (c *command) help() string {
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
	doc, ok := f.(cli.DocGenerationFlag)
	category, ok2 := f.(cli.CategorizableFlag)
	visible, ok3 := f.(cli.VisibleFlag)
	if !ok || !ok2 || !ok3 || category.GetCategory() != group || !visible.IsVisible() {
		return
	}
	names := slices.Clone(f.Names())
	slices.Reverse(names) // -c, --config
	for i, name := range names {
		names[i] = dashed(name)
	}
	placeholder, usage := "", doc.GetUsage()
	if rest, ok := strings.CutPrefix(usage, "`"); ok {
		placeholder, usage, _ = strings.Cut(rest, "` ")
		placeholder = " " + placeholder
	}
	if value := doc.GetDefaultText(); value != "" && value != `""` && value != "false" {
		usage += fmt.Sprintf(" (default %s)", strings.Trim(value, `"`))
	}
	entry(b, strings.Join(names, ", ")+placeholder, usage)
}

// entry writes a term and its explanation beside it, or below where the term is long.
func entry(b *strings.Builder, term, text string) {
	const margin = 2
	b.WriteString("  " + term)
	if room := helpIndent - margin - len(term); room > 1 {
		b.WriteString(strings.Repeat(" ", room))
	} else {
		b.WriteString("\n" + strings.Repeat(" ", helpIndent))
	}
	b.WriteString(fill(text, helpIndent))
	b.WriteByte('\n')
}

// fill breaks a text into lines; all but the first are indented.
func fill(text string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
