package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// arranged is a command line whose flags come before the arguments. The flag parser stops at the first argument and
// silently takes all that follows, flags included, for arguments; and it refuses a flag before the command that
// belongs to the command.
type arranged struct {
	command string   // "" when there is none
	flags   []string // as given: "--slot", "x", "--once"
	names   []string // of the flags, without dashes
	args    []string
}

// arrange takes a command line apart. A flag may stand anywhere: before the command, after it, behind arguments. What
// follows "--" is an argument even with dashes, and so is "-" alone.
func arrange(line []string, takesValue map[string]bool) (arranged, error) {
	var a arranged
	var words []string
	for i := 0; i < len(line); i++ {
		word := line[i]
		if word == "--" {
			words = append(words, line[i+1:]...)
			break
		}
		if len(word) < 2 || word[0] != '-' {
			words = append(words, word)
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
		value, known := takesValue[name]
		if !known {
			return a, unknownFlag(name, takesValue)
		}
		a.names = append(a.names, name)
		a.flags = append(a.flags, word)
		if value && !hasValue {
			if i+1 == len(line) {
				return a, misuse("the flag %s needs a value", dashed(name))
			}
			i++
			a.flags = append(a.flags, line[i])
		}
	}
	if len(words) > 0 {
		a.command, a.args = words[0], words[1:]
	}
	if len(a.command) > 1 && a.command[0] == '-' { // it stood behind "--"; as the first word it would be read as a flag
		return a, fail(exitUsage, fmt.Errorf("unknown command %q", a.command), "embedsidecar help lists the commands")
	}
	return a, nil
}

// words returns the line again, flags first.
func (a arranged) words() []string {
	line := []string{"embedsidecar"}
	if a.command != "" {
		line = append(line, a.command)
	}
	line = append(line, a.flags...)
	if a.command != "" {
		line = append(line, "--")
		line = append(line, a.args...)
	}
	return line
}

func unknownFlag(name string, known map[string]bool) error {
	err := misuse("unknown flag %s", dashed(name))
	if slices.Contains([]string{"where", "filter", "text", "priority", "name", "chunking"}, name) {
		if name == "filter" {
			name = "where"
		}
		return fail(exitUsage, err, name+
			" belongs to a pipeline in a file, named by --config FILE: pipelines: [{table: ..., "+name+
			": ...}]; the README's chapter Pipelines has one")
	}
	var names []string
	for n := range known {
		names = append(names, n)
	}
	slices.Sort(names)
	if near := config.Nearest(name, names); near != "" {
		return fail(exitUsage, err, "did you mean "+dashed(near)+"?")
	}
	return fail(exitUsage, err, "embedsidecar help COMMAND lists the flags; an argument that begins with a dash goes behind --")
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// arity tells of every flag of every command whether it takes a value. A name means the same kind of flag everywhere.
func arity(commands []*command) map[string]bool {
	takes := map[string]bool{"help": false, "h": false, "version": false}
	for _, c := range commands {
		for _, f := range c.allFlags() {
			value := true
			if doc, ok := f.(cli.DocGenerationFlag); ok {
				value = doc.TakesValue()
			}
			for _, name := range f.Names() {
				takes[name] = value
			}
		}
	}
	return takes
}
