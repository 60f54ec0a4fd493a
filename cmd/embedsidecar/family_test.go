package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// dogs returns a program with a family of commands.
func dogs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	member := func(name string, maxArgs int) *command {
		loud := false
		return &command{
			name: name, group: groupPlugins, usage: "what dogs " + name + " does", maxArgs: maxArgs, arguments: "[WORD]",
			flags: []cli.Flag{&cli.BoolFlag{Name: "loud", Destination: &loud}},
			run: func(_ context.Context, env *environment) error {
				_, err := fmt.Fprintf(env.stdout, "dogs %s%v%v", name, env.args, loud)
				return err
			},
		}
	}
	p := &program{
		commands: []*command{newFamily("dogs", member("bark", 1), member("fetch", 0)), newVersion()},
		stdin:    strings.NewReader(""), stdout: &out, stderr: &errOut,
	}
	code = p.run(t.Context(), append([]string{"embedsidecar"}, args...))
	return code, out.String(), errOut.String()
}

func TestFamily(t *testing.T) {
	for _, test := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{"dogs bark", "dogs bark[]false", "", 0},
		{"--loud dogs bark twice", "dogs bark[twice]true", "", 0},
		{"dogs --loud bark twice", "dogs bark[twice]true", "", 0},
		{"dogs bark twice --loud", "dogs bark[twice]true", "", 0},
		{"dogs fetch stick", "", "dogs fetch takes no arguments", 2},
		{"dogs", "", "dogs needs a subcommand: bark, fetch\nembedsidecar: hint: embedsidecar help dogs", 2},
		{"dogs brak", "", "unknown command \"dogs brak\"\nembedsidecar: hint: did you mean dogs bark?", 2},
		{"dogs swim", "", "dogs takes bark, fetch", 2},
		{"dogs bark --loudest", "", "unknown flag --loudest", 2},
		{"version --loud", "", "--loud is no flag of version", 2},
		{"help dogs", "dogs fetch [WORD]         what dogs fetch does", "", 0},
		{"dogs -h", "dogs fetch [WORD]         what dogs fetch does", "", 0},
		{"help dogs bark", "embedsidecar dogs bark: what dogs bark does", "", 0},
		{"dogs bark --help", "embedsidecar dogs bark: what dogs bark does", "", 0},
		{"version extra --help", "embedsidecar version: ", "", 0},
		{"help dogs brak", "", "did you mean dogs bark?", 2},
		{"help dogs bark twice", "", "takes one command, not 3", 2},
		{"help version dogs", "", "takes one command, not 2", 2},
		{"help", "Plugins:\n  dogs bark ", "", 0},
	} {
		code, stdout, stderr := dogs(t, strings.Fields(test.line)...)
		if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) ||
			test.stderr == "" && stderr != "" {
			t.Errorf("%s = %d: %s%s", test.line, code, stdout, stderr)
		}
	}
}
