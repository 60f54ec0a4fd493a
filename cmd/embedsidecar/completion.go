package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

// completeWord is the command with which the shell scripts ask for completions of the last word of a line.
const completeWord = "__complete"

// shells are the completion scripts. Each calls this program for the candidates.
var (
	//go:embed shells/complete.bash
	bash string
	//go:embed shells/complete.zsh
	zsh string
	//go:embed shells/complete.fish
	fish string
	//go:embed shells/complete.ps1
	powershell string

	shells = map[string]string{"bash": bash, "zsh": zsh, "fish": fish, "powershell": powershell}
)

func newCompletion() *command {
	return &command{
		name: "completion", group: groupTool, usage: "print the script that completes commands and flags in a shell",
		description: "SHELL is bash, zsh, fish or powershell. For bash: source <(embedsidecar completion bash), in " +
			"~/.bashrc to keep it. For people who type commands.",
		arguments: "SHELL", minArgs: 1, maxArgs: 1,
		run: func(_ context.Context, env *environment) error {
			script, known := shells[env.args[0]]
			if !known {
				return misuse("completion: expected bash, zsh, fish or powershell, not %q", env.args[0])
			}
			return env.printf("%s", script)
		},
	}
}

// complete prints the completions of the last word, one a line, each with its description behind a tab.
func (p *program) complete(words []string) error {
	flags := knownFlags(leaves(p.commands))
	begun := ""
	if len(words) > 0 {
		begun, words = words[len(words)-1], words[:len(words)-1]
	}
	l, missing := apart(words, flags)
	c := &command{members: p.commands}
	for _, word := range l.words {
		at := slices.IndexFunc(c.members, func(m *command) bool { return m.name == word })
		if word != "help" && at < 0 {
			break // an argument
		} else if at >= 0 {
			c = c.members[at]
		}
	}
	if missing != nil { // the last word is the value of a flag
		for _, value := range flagValues(strings.TrimLeft(words[len(words)-1], "-")) {
			if _, err := fmt.Fprintln(p.stdout, value); err != nil {
				return err
			}
		}
		return nil
	}
	return p.candidates(c, begun)
}

func flagValues(flag string) []string {
	for _, s := range config.Settings() {
		if s.Flag == flag || s.Path == "pipelines[]."+flag {
			return s.Choices
		}
	}
	return map[string][]string{
		"output": output.Forms, "o": output.Forms, "color": {"auto", "always", "never"}, "kind": {"document", "query"},
	}[flag]
}

// candidates prints the flags of a command if the word begins with a dash, and otherwise its members.
func (p *program) candidates(c *command, begun string) error {
	found := map[string]string{}
	switch {
	case strings.HasPrefix(begun, "-") && len(c.members) == 0:
		for _, f := range visible(c.allFlags()) {
			found["--"+f.name] = f.usage
		}
	case c.name == "completion":
		for name := range shells {
			found[name] = ""
		}
	default:
		for _, m := range c.members {
			found[m.name] = m.usage
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !strings.HasPrefix(name, begun) {
			continue
		}
		if _, err := fmt.Fprintf(p.stdout, "%s\t%s\n", name, found[name]); err != nil {
			return err
		}
	}
	return nil
}
