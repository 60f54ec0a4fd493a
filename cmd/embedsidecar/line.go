package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// line is a parsed command line. The parser of the library would stop at the first argument, take the flags behind it
// for arguments, and refuse a command's flag before the command.
type line struct {
	words  []string // the command and its arguments
	behind int      // how many of them, at the end, followed "--"
	flags  []flagValue
}

// flagValue is a flag as given: any of its names, without dashes.
type flagValue struct{ name, value string }

// has reports whether a flag was given.
func (l *line) has(names ...string) bool {
	return slices.ContainsFunc(l.flags, func(f flagValue) bool { return slices.Contains(names, f.name) })
}

// asksForHelp reports whether the line begins with the word help.
func (l *line) asksForHelp() bool { return len(l.words) > 0 && l.words[0] == "help" }

// last returns the last value given for a flag; "": none.
func (l *line) last(names ...string) string {
	value := ""
	for _, f := range l.flags {
		if slices.Contains(names, f.name) {
			value = f.value
		}
	}
	return value
}

// apart parses a command line. A flag may stand anywhere: before the command, after it, behind arguments. Everything
// behind "--" is an argument, and so is "-" alone. Beside an error, l has the words and flags that were parsed.
func apart(args []string, flags map[string]*known) (l line, err error) {
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" {
			l.behind = len(args) - i - 1
			l.words = append(l.words, args[i+1:]...)
			break
		}
		if len(word) < 2 || word[0] != '-' {
			l.words = append(l.words, word)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
		flag := flags[name]
		switch {
		case flag == nil:
			err = cmp.Or(err, unknownFlag(name, flags))
			continue
		case !flag.takesValue() && !hasValue:
			value = "true"
		case !hasValue && i+1 == len(args):
			return l, cmp.Or(err, misuse("the flag %s needs a value", dashed(name)))
		case !hasValue:
			i++
			value = args[i]
		}
		l.flags = append(l.flags, flagValue{name, value})
	}
	return l, err
}

func unknownFlag(name string, flags map[string]*known) error {
	err := misuse("unknown flag %s", dashed(name))
	if hint := ofFile(name); hint != "" {
		return problem.New(problem.Usage, err, hint)
	}
	if near := spelling.One(name, slices.Sorted(maps.Keys(flags))); near != "" {
		return problem.New(problem.Usage, err, spelling.Question(dashed(near)))
	}
	return problem.New(problem.Usage, err, "embedsidecar help COMMAND lists the flags; an argument that begins with a dash goes behind --")
}

// ofFile returns a hint about a setting that has no flag; "": not a setting.
func ofFile(name string) string {
	if name == "filter" {
		name = "where"
	}
	hint := ""
	for _, s := range config.Settings() {
		path := strings.NewReplacer("_", "-", ".", "-").Replace(s.Path)
		_, part, ofPipeline := strings.Cut(s.Path, "pipelines[].")
		switch {
		case s.Flag != "":
		case ofPipeline && strings.HasPrefix(part+".", name+"."):
			return name + " belongs to a pipeline in a file, named by --config FILE: pipelines: [{table: ..., " + name +
				": ...}]; docs/configuration.md has an example"
		case hint == "" && !strings.Contains(path, "[]") && strings.HasSuffix("-"+path, "-"+name):
			hint = "it is a key of the file, which --set takes, too: --set " + s.Path + "=..."
		}
	}
	return hint
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// set passes the flags of a line to the command.
func (l *line) set(cc *cli.Context, c *command, flags map[string]*known) error {
	for _, given := range l.flags {
		if owners := flags[given.name].owners; !slices.Contains(owners, c) {
			return foreignFlag(given.name, c, owners)
		}
	}
	for _, given := range l.flags {
		if flag := flags[given.name].flag; cc.Set(flag.Names()[0], given.value) != nil {
			return badValue(given, flag)
		}
	}
	return nil
}

// foreignFlag returns the error for a flag that only other commands have.
func foreignFlag(name string, c *command, owners []*command) error {
	if len(owners) == 0 {
		return misuse("%s goes without a command", dashed(name))
	}
	hint := ofFile(name)
	if hint == "" || !c.pipelines {
		paths := lists.Map(owners, func(owner *command) string { return owner.path() })
		hint = "it belongs to " + strings.Join(paths, ", ")
	}
	return problem.New(problem.Usage, fmt.Errorf("%s is no flag of %s", dashed(name), c.path()), hint)
}

// badValue returns the error for a value that a flag does not accept.
func badValue(given flagValue, f cli.Flag) error {
	want := "another value"
	switch f.(type) {
	case *cli.DurationFlag:
		want = "a duration such as 500ms, 30s or 5m"
	case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag:
		want = "a whole number"
	case *cli.BoolFlag:
		want = "true or false"
	}
	return misuse("%s: expected %s, not %q", dashed(given.name), want, given.value)
}
