package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// The groups of the help text.
const (
	groupStart   = "Start"
	groupObserve = "Observe"
	groupOperate = "Operate"
	groupSearch  = "Search"
	groupPlugins = "Plugins" // plugins, apart from the run
	groupModels  = "Models"  // model folders
	groupAdmin   = "Administration"
	groupConfig  = "Configuration"
	groupTool    = "This program"
	groupGeneral = "General" // flags that every command has
)

// command is a command or a family of commands. run gets all settings merged and checked.
type command struct {
	name, usage, description string
	family                   string     // first word of its path: "plugins" of plugins list
	members                  []*command // of a family, which has no run
	group                    string
	arguments                string // for the help text: "PIPELINE TEXT"
	minArgs, maxArgs         int    // maxArgs < 0: any number
	flags                    []cli.Flag
	settings                 []string // groups of settings that are used here; the others are accepted and hidden
	unused                   []string // unused flags of these groups: accepted and hidden
	pipelines                bool     // the flags that describe pipelines are used here
	acts                     bool     // has --yes and --dry-run
	// runs until stopped; its log has life events, that of other commands only problems
	daemon bool
	// runs until stopped, and that is not an error
	endless bool
	// inspects what runs: mistakes in the settings, which concern the next start, are ignored
	probe bool
	reach reach // with several databases
	// adds the flags that arguments stand for; may be nil
	stand func(args []string, given map[string][]string)
	run   func(ctx context.Context, env *environment) error
}

// reach says which databases a command uses if several are configured.
type reach int

const (
	oneDatabase  reach = iota // the user must choose it
	eachDatabase              // one after another, unless some are chosen
	allDatabases              // the command handles them itself
)

func (c *command) asksDatabase() bool { return slices.Contains(c.settings, config.GroupDatabase) }

var databaseGroups = []string{config.GroupDatabase}

// newFamily returns a command that chooses among its members by name.
func newFamily(name string, members ...*command) *command {
	for _, c := range members {
		c.family = name
	}
	return &command{name: name, members: members}
}

// path is the name as typed: "plugins list".
func (c *command) path() string { return strings.TrimSpace(c.family + " " + c.name) }

// leaves returns the commands that are not families.
func leaves(commands []*command) []*command {
	var all []*command
	for _, c := range commands {
		if len(c.members) > 0 {
			all = append(all, c.members...)
		} else {
			all = append(all, c)
		}
	}
	return all
}

// choose returns the error of a family, or of the program, that was called with these words: the first is no member.
func (c *command) choose(words []string) error {
	names := lists.Map(c.members, func(m *command) string { return m.name })
	all, missing, known := names, fmt.Errorf("%s needs a subcommand: %s", c.name, strings.Join(names, ", ")),
		c.name+" takes "+strings.Join(names, ", ")
	help := "embedsidecar help " + c.name + " describes them"
	if c.name == "" {
		missing, known, help = errors.New("a command is missing"), listHint, listHint
		all = append(names, "help")
	}
	if len(words) == 0 || words[0] == "" && c.name == "" {
		return problem.New(problem.Usage, missing, help)
	}
	called := func(word string) string { return strings.TrimSpace(c.name + " " + word) }
	if near := spelling.One(words[0], all); near != "" {
		known = spelling.Question(called(near))
	}
	return problem.New(problem.Usage, fmt.Errorf("unknown command %q", called(words[0])), known)
}

const listHint = "embedsidecar help lists the commands"

// allFlags returns the command's own flags, then those that every command has. Each call makes new ones.
func (c *command) allFlags() []cli.Flag {
	all := slices.Concat(c.flags, pipelineFlags(c.pipelines), settingFlags(c.settings, c.unused), generalFlags(c.acts))
	if c.asksDatabase() {
		all = append(all, databaseFlag())
	}
	return all
}

// cli converts the command for the cli library, which finds it by name and keeps its flags.
func (c *command) cli(p *program) *cli.Command {
	l := &cli.Command{
		Name: c.name, SkipFlagParsing: true, HideHelp: true,
		Action: func(cc *cli.Context) error { return p.chosen(cc, c) },
	}
	for _, m := range c.members {
		l.Subcommands = append(l.Subcommands, m.cli(p))
	}
	if l.Subcommands == nil {
		l.Flags = c.allFlags()
	}
	return l
}

func (c *command) countArgs(args []string) error {
	switch {
	case len(args) < c.minArgs:
		return misuse("%s requires %s: see embedsidecar help %s", c.path(), c.arguments, c.path())
	case c.maxArgs >= 0 && len(args) > c.maxArgs:
		extra := args[c.maxArgs]
		if extra == "true" || extra == "false" {
			return problem.New(problem.Usage, fmt.Errorf("unexpected argument %q", extra),
				"switches are written --flag or --flag="+extra)
		}
		if c.maxArgs == 0 && c.pipelines {
			return problem.New(problem.Usage, fmt.Errorf("%s takes no arguments, but there is %q", c.path(), extra),
				"a list has no blanks, or quotes around it: --columns title,body")
		}
		if c.maxArgs == 0 {
			return misuse("%s takes no arguments, but there is %q", c.path(), extra)
		}
		return problem.New(problem.Usage, fmt.Errorf("unexpected argument %q: %s takes %s", extra, c.path(), c.arguments),
			"an argument with spaces needs quotes around it")
	}
	return nil
}
