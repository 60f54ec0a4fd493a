package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
	"github.com/embedsidecar/embedsidecar/serve"
)

// tokensFile is the file that the token commands work on.
func (e *environment) tokensFile() (string, error) {
	if e.config.Queries.TokensFile == "" {
		return "", fail(exitUsage, errors.New("which file? no tokens file was named"), "--tokens-file FILE, EMBEDSIDECAR_TOKENS_FILE, or auth.tokens_file in the configuration")
	}
	return e.config.Queries.TokensFile, nil
}

func newTokenCreate() *command {
	var role string
	return &command{
		name: "token create", group: groupAdmin, usage: "make a token for somebody who may query, and print it once", arguments: "NAME", minArgs: 1, maxArgs: 1,
		description: "Adds a line to the tokens file, which is made if it is not there: name, role, and the SHA-256 of the token. The token itself is printed and kept nowhere. Those who answer queries with this file know the token within a few seconds.",
		flags:       []cli.Flag{&cli.StringFlag{Name: "role", Destination: &role, Value: serve.Roles[0], Usage: "`ROLE` " + strings.Join(serve.Roles, ", ") + "; all may query"}},
		settings:    []string{config.GroupQueries},
		run: func(_ context.Context, env *environment) error {
			path, err := env.tokensFile()
			if err != nil {
				return err
			}
			secret, about, err := serve.CreateToken(path, env.args[0], role)
			switch {
			case errors.Is(err, serve.ErrTokenName):
				return fail(exitConflict, fmt.Errorf("%s: %w: %q", path, err, env.args[0]), "embedsidecar token revoke takes it out", "choose another name: two may be in force while one takes the other's place")
			case err != nil:
				return fail(exitUsage, err)
			}
			if env.output == "table" {
				env.say("token %q with role %s is in %s; this is the only time it is shown:", about.Name, about.Role, path)
				return env.printf("%s\n", secret)
			}
			type created struct {
				serve.Token

				Secret string `json:"token"`
			}
			return env.show(created{about, secret}, func() listing {
				return listing{header: []string{"name", "role", "id", "token"}, rows: [][]any{{about.Name, about.Role, about.ID, secret}}}
			})
		},
	}
}

func newTokenList() *command {
	return &command{
		name: "token list", group: groupAdmin, usage: "list who may query", description: "ID is the beginning of the token's SHA-256: printf %s TOKEN | sha256sum tells which one somebody has.",
		settings: []string{config.GroupQueries},
		run: func(_ context.Context, env *environment) error {
			path, err := env.tokensFile()
			if err != nil {
				return err
			}
			list, err := serve.ListTokens(path)
			if err != nil {
				return tokenFailure(err)
			}
			return env.show(map[string][]serve.Token{"tokens": list}, func() listing {
				l := listing{header: []string{"name", "role", "id"}}
				for _, t := range list {
					l.rows = append(l.rows, []any{t.Name, t.Role, t.ID})
				}
				return l
			})
		},
	}
}

func newTokenRevoke() *command {
	return &command{
		name: "token revoke", group: groupAdmin, usage: "take a token out of the tokens file", arguments: "NAME", minArgs: 1, maxArgs: 1,
		description: "Those who answer queries with this file refuse the token within a few seconds, also if it was the last one.",
		settings:    []string{config.GroupQueries},
		run: func(_ context.Context, env *environment) error {
			path, err := env.tokensFile()
			if err != nil {
				return err
			}
			revoked, err := serve.RevokeTokens(path, env.args[0])
			if err != nil {
				return tokenFailure(err)
			}
			if revoked == 0 {
				return fail(exitNoMatch, fmt.Errorf("%s holds no token %q", path, env.args[0]), "embedsidecar token list shows those there are")
			}
			env.say("%s revoked", count(int64(revoked), "token"))
			return nil
		},
	}
}

// tokenFailure gives an error of a file its exit status.
func tokenFailure(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitUsage, err, "embedsidecar token create makes it")
	}
	return fail(exitUsage, err)
}
