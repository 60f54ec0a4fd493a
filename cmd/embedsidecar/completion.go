package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeWord is what the scripts of shells put before the words of a line to be told how its last one may go on.
const completeWord = "__complete"

// shells are the scripts for shells. Each asks the program itself, so none of them knows a command.
var shells = map[string]string{
	"bash": `_embedsidecar() {
  local IFS=$'\n'
  local words
  words=$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _embedsidecar embedsidecar
`,
	"zsh": `#compdef embedsidecar
_embedsidecar() {
  local -a found
  found=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null | sed 's/:/\\:/g; s/\t/:/')}")
  [[ -n "${found[1]}" ]] && _describe embedsidecar found || _files
}
[[ "${funcstack[1]}" == _embedsidecar ]] && _embedsidecar || compdef _embedsidecar embedsidecar
`,
	"fish": `function __embedsidecar
  set -l words (commandline -opc)
  embedsidecar __complete $words[2..] (commandline -ct) 2>/dev/null
end
complete -c embedsidecar -a '(__embedsidecar)'
`,
	"powershell": `Register-ArgumentCompleter -Native -CommandName embedsidecar -ScriptBlock {
  param($word, $line, $at)
  $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
  if ($word -eq '') { $words += '""' }
  & embedsidecar __complete @words 2>$null | ForEach-Object {
    $name, $tip = $_ -split "` + "`" + `t", 2
    if ($name -like "$word*") {
      if (-not $tip) { $tip = $name }
      [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', $tip)
    }
  }
}
`,
}

func newCompletion() *command {
	return &command{
		name: "completion", group: groupTool, usage: "print the script that completes commands and flags in a shell",
		description: "SHELL is bash, zsh, fish or powershell. For bash: source <(embedsidecar completion bash), in ~/.bashrc to keep it.",
		arguments:   "SHELL", minArgs: 1, maxArgs: 1,
		run: func(_ context.Context, env *environment) error {
			script, known := shells[env.args[0]]
			if !known {
				return misuse("completion: expected bash, zsh, fish or powershell, not %q", env.args[0])
			}
			return env.printf("%s", script)
		},
	}
}

// complete prints how the last of some words may go on, one way a line, what it is behind a tab.
func (p *program) complete(words []string) error {
	flags := knownFlags(leaves(p.commands))
	begun := ""
	if len(words) > 0 {
		begun, words = words[len(words)-1], words[:len(words)-1]
	}
	l, missing := apart(words, flags)
	c := &command{members: p.commands}
	for _, word := range l.words {
		at := slices.IndexFunc(c.members, func(m *command) bool { return m.name == word || slices.Contains(m.aliases, word) })
		if word != "help" && at < 0 {
			break // an argument
		} else if at >= 0 {
			c = c.members[at]
		}
	}
	if missing != nil { // the last word is the value of a flag
		for _, value := range flagValues[strings.TrimLeft(words[len(words)-1], "-")] {
			if _, err := fmt.Fprintln(p.stdout, value); err != nil {
				return err
			}
		}
		return nil
	}
	return p.candidates(c, begun)
}

// flagValues are the words that some flags take.
var flagValues = map[string][]string{
	"output": {"table", "json", "yaml", "csv"}, "o": {"table", "json", "yaml", "csv"},
	"color": {"auto", "always", "never"},
	"index": {"hnsw", "none"}, "into-type": {"vector", "halfvec", "bit", "sparsevec"}, "on-lost": {"reconcile", "stop"},
	"log-level": {"debug", "info", "warn", "error"}, "log-format": {"auto", "text", "json"}, "kind": {"document", "query"},
}

// candidates prints the flags of a command where one is begun, or else the commands it consists of.
func (p *program) candidates(c *command, begun string) error {
	found := map[string]string{}
	switch {
	case strings.HasPrefix(begun, "-") && len(c.members) == 0:
		for _, f := range c.allFlags() {
			if doc, ok := f.(cli.VisibleFlag); ok && doc.IsVisible() {
				_, found["--"+f.Names()[0]] = flagTerm(f)
			}
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
