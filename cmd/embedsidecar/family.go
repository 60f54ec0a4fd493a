package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// A command's name may be two words, "plugins list": the first is its family's.

// family returns the commands of a family.
func (p *program) family(name string) []*command {
	var members []*command
	for _, c := range p.commands {
		if first, _, ok := strings.Cut(c.name, " "); ok && first == name {
			members = append(members, c)
		}
	}
	return members
}

// joined puts the two words of a family's command together. A family alone, or with a word that it does not know, is
// an error.
func (p *program) joined(a arranged) (arranged, error) {
	members := p.family(a.command)
	if len(members) == 0 {
		return a, nil
	}
	var words []string
	for _, c := range members {
		words = append(words, strings.TrimPrefix(c.name, a.command+" "))
	}
	if len(a.args) == 0 {
		return a, fail(exitUsage, fmt.Errorf("%s wants a further word: %s", a.command, strings.Join(words, ", ")),
			"embedsidecar help "+a.command+" tells what they do")
	}
	for i, word := range words {
		if word == a.args[0] {
			a.command, a.args = members[i].name, a.args[1:]
			return a, nil
		}
	}
	err := fmt.Errorf("unknown command %q", a.command+" "+a.args[0])
	if near := config.Nearest(a.args[0], words); near != "" {
		return a, fail(exitUsage, err, "did you mean "+a.command+" "+near+"?")
	}
	return a, fail(exitUsage, err, a.command+" takes "+strings.Join(words, ", "))
}

// member returns the second word of a family's command, if there is one.
func (p *program) member(a arranged) []string {
	if len(p.family(a.command)) == 0 {
		return nil
	}
	return a.args[:min(len(a.args), 1)]
}

// familyHelp is the text of embedsidecar help FAMILY; "" when there is none.
func (p *program) familyHelp(name string) string {
	members := p.family(name)
	if len(members) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "embedsidecar %s COMMAND [flags] [arguments]\n\n", name)
	for _, c := range members {
		entry(&b, strings.TrimSpace(c.name+" "+c.arguments), c.usage)
	}
	fmt.Fprintf(&b, "\nembedsidecar help %s COMMAND tells more.\n", name)
	return b.String()
}

// help prints what a person asked for, to standard output.
func (p *program) help(words ...string) error {
	name := strings.Join(words, " ")
	if text := p.familyHelp(name); text != "" {
		_, err := io.WriteString(p.stdout, text)
		return err
	}
	if len(words) > 2 || len(words) == 2 && len(p.family(words[0])) == 0 {
		return misuse("help takes one command, not %d", len(words))
	}
	if len(words) == 2 {
		a, err := p.joined(arranged{command: words[0], args: words[1:]})
		if err != nil {
			return err
		}
		name = a.command
	}
	return p.helpOf(name)
}
