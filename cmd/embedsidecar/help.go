package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
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
		config.GroupQueries, config.GroupAdmin, config.GroupOps, groupGeneral,
	}
)

const helpIndent = 28 // column where explanations begin

// programHelp is the text of embedsidecar --help.
func programHelp(commands []*command) string {
	var b strings.Builder
	b.WriteString("embedsidecar keeps pgvector embeddings in sync with your tables.\n\n" +
		"  embedsidecar COMMAND [flags] [arguments]\n" +
		"  embedsidecar run --database-url URL --table public.docs --columns title,body --into embedding\n")
	for _, group := range commandGroups {
		var entries strings.Builder
		for _, c := range commands {
			if c.group == group {
				entry(&entries, c.path(), c.usage)
			}
		}
		if entries.Len() > 0 {
			fmt.Fprintf(&b, "\n%s:\n%s", group, entries.String())
		}
	}
	b.WriteByte('\n')
	b.WriteString(output.Fill(helpOfFlags, 0) + "\n\n" + output.Fill(helpOfStatuses, 0) + "\n")
	return b.String()
}

const (
	helpOfFlags = "embedsidecar help COMMAND describes a command and its flags, embedsidecar help CODE an error, such as " +
		"ES0307. Flags may stand before the command, after it, and after arguments. Each can also be set by a variable: " +
		"EMBEDSIDECAR_ and its name, as in EMBEDSIDECAR_DATABASE_URL. Flags win " +
		"over variables, these over the file of --config, and that over the defaults. What a connection string omits comes from " +
		"the PG* variables, the service file and the password file."
	helpOfStatuses = "Exit status: 0 done, 1 internal error, 2 usage or configuration, 3 not set up, 4 checks failed, 5 timeout, " +
		"6 no connection, 7 not permitted, 8 held by someone else, 9 nothing matched, 130 interrupted."
)

// familyHelp is the text of embedsidecar help FAMILY.
func (c *command) familyHelp() string {
	var b strings.Builder
	fmt.Fprintf(&b, "embedsidecar %s COMMAND [flags] [arguments]\n\n", c.name)
	for _, m := range c.members {
		entry(&b, strings.TrimSpace(m.path()+" "+m.arguments), m.usage)
	}
	fmt.Fprintf(&b, "\nembedsidecar help %s COMMAND explains a command.\n", c.name)
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
	if c.description != "" {
		fmt.Fprintf(&b, "\n%s\n", output.Fill(c.description, 0))
	}
	flags := visible(c.allFlags())
	for _, group := range flagGroups {
		var section strings.Builder
		for _, f := range flags {
			if f.heading == group {
				entry(&section, f.term, f.usage)
			}
		}
		if section.Len() == 0 {
			continue
		}
		group = cmp.Or(group, "Flags")
		fmt.Fprintf(&b, "\n%s:\n%s", group, section.String())
	}
	return b.String()
}

// entry writes a term with its explanation beside it, or below a long term.
func entry(b *strings.Builder, term, explanation string) {
	const margin = 2
	b.WriteString("  " + term)
	if room := helpIndent - margin - len(term); room > 1 {
		b.WriteString(strings.Repeat(" ", room))
	} else {
		b.WriteString("\n" + strings.Repeat(" ", helpIndent))
	}
	b.WriteString(output.Fill(explanation, helpIndent))
	b.WriteByte('\n')
}

func newMan() *command {
	return &command{
		name: "man", group: groupTool, usage: "print the manual page",
		description: "To read it: embedsidecar man | man -l -. For packages.",
		run: func(_ context.Context, env *environment) error {
			return env.printf("%s", manual(leaves(commands())))
		},
	}
}

// manual returns the manual page, as roff source, with the help texts of all commands.
func manual(all []*command) string {
	var b strings.Builder
	line := func(parts ...string) { b.WriteString(strings.Join(parts, "") + "\n") }
	line(`.TH EMBEDSIDECAR 1 "" "embedsidecar `, roff(version), `" "User Commands"`)
	line(".SH NAME\nembedsidecar \\- keep pgvector embeddings in sync with your tables")
	line(".SH SYNOPSIS\n.B embedsidecar\n.I COMMAND\n[flags] [arguments]")
	line(".SH DESCRIPTION\n", roff(helpOfFlags), "\n.SH COMMANDS")
	describe := func(f described) { line(".TP\n\\fB", roff(f.term), "\\fR\n", roff(f.usage)) }
	for _, c := range all {
		line(".SS ", roff(strings.TrimSpace(c.path()+" "+c.arguments)))
		line(roff(strings.ToUpper(c.usage[:1]) + c.usage[1:] + "."))
		if c.description != "" {
			line(".PP\n", roff(c.description))
		}
		for _, f := range visible(c.allFlags()) {
			if f.heading != groupGeneral {
				describe(f)
			}
		}
	}
	line(".SH \"FLAGS OF EVERY COMMAND\"")
	for _, f := range visible(generalFlags(true)) {
		describe(f)
	}
	line(".SH \"EXIT STATUS\"\n", roff(helpOfStatuses))
	return b.String()
}

// roff escapes plain text for man.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
