package main

import (
	"context"
	"strings"
)

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
