package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// onTokens returns the run function of a token command, which gets the path of the tokens file.
func onTokens(run func(env *environment, path string) error) func(context.Context, *environment) error {
	return func(_ context.Context, env *environment) error {
		if path := env.config.Queries.TokensFile; path != "" {
			return run(env, path)
		}
		return problem.New(problem.Usage, errors.New("which file? no tokens file was named"),
			"--tokens-file FILE, EMBEDSIDECAR_TOKENS_FILE, or auth.tokens_file in the configuration")
	}
}

// tokenGrant is what `token create` lets the holder do.
type tokenGrant struct {
	role              string
	pipelines, filter cli.StringSlice
	databases         cli.StringSlice
	// one value each; an empty value, as from an unset variable, must not mean no limit
	databaseRole, ttl cli.StringSlice
}

func (g *tokenGrant) flags() []cli.Flag {
	return []cli.Flag{
		own.text("role", &g.role,
			"`ROLE` query embeds texts and searches pipelines; embed only embeds, and sees nothing of the database; for the administration (--admin-listen), viewer reads, operator also acts, admin also sees and reloads the configuration and plugins, and creates, changes and drops pipelines"),
		own.list("only", &g.pipelines, "`PIPELINE` pipeline that may be searched or administered; again for more", "all"),
		own.list("database", &g.databases, "`NAME` database that the token is for, if there are several; again for more", "all"),
		own.list("filter", &g.filter,
			"`COLUMN=VALUE` searches find only rows that match; again for more conditions"),
		own.list("database-role", &g.databaseRole,
			"`ROLE` database role that searches run as, so that its grants and row level security apply", "that of the connection"),
		own.list("ttl", &g.ttl, "`DURATION` time after which the token expires, such as 12h or 90d", "never"),
	}
}

func (g *tokenGrant) grant() (gate.Grant, error) {
	grant := gate.Grant{Role: g.role, Pipelines: g.pipelines.Value(), Databases: g.databases.Value()}
	switch given := g.databaseRole.Value(); {
	case len(given) > 1 || len(given) == 1 && given[0] == "":
		return grant, misuse("--database-role: expected the name of one role")
	case len(given) == 1:
		grant.DatabaseRole = given[0]
	}
	switch given := g.ttl.Value(); {
	case len(given) > 1:
		return grant, misuse("--ttl: expected one duration")
	case len(given) == 1:
		ttl, err := daysOrDuration(given[0])
		if err != nil {
			return grant, err
		}
		grant.Expires = time.Now().Add(ttl)
	}
	for _, condition := range g.filter.Value() { // tokens have no other conditions, and dropping one would show every row
		column, value, ok := strings.Cut(condition, "=")
		if !ok || column == "" || strings.HasPrefix(strings.TrimSpace(condition), "{") {
			return grant, misuse("--filter: expected COLUMN=VALUE, not %q", condition)
		}
		if grant.Filter == nil {
			grant.Filter = map[string][]string{}
		}
		grant.Filter[column] = append(grant.Filter[column], value)
	}
	return grant, nil
}

// daysOrDuration parses 90d, or a Go duration.
func daysOrDuration(text string) (time.Duration, error) {
	const most, day = 36500, 24 * time.Hour // a hundred years
	if days, is := strings.CutSuffix(text, "d"); is {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= most {
			return time.Duration(n) * day, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= time.Second && d <= most*day {
		return d, nil
	}
	return 0, misuse("--ttl: expected a duration such as 12h or 90d, not %q", text)
}

func newTokenCreate() *command {
	asked := tokenGrant{role: gate.RoleQuery}
	return &command{
		name: "create", group: groupAdmin, usage: "create a token for queries or administration, and print it once",
		arguments: "NAME", minArgs: 1, maxArgs: 1,
		description: "Adds a line to the tokens file, which is created if it is missing: name, role, the SHA-256 of the " +
			"token, and its limits. The token itself is printed and not stored. Running programs accept it " +
			"within a few seconds. For every application and person that uses a listener.",
		flags:    asked.flags(),
		settings: []string{config.GroupQueries},
		run: onTokens(func(env *environment, path string) error {
			grant, err := asked.grant()
			if err != nil {
				return err
			}
			secret, about, err := gate.CreateToken(path, env.args[0], grant)
			switch {
			case errors.Is(err, gate.ErrTokenName):
				return problem.New(problem.Conflict, fmt.Errorf("%s: %w: %q", path, err, env.args[0]),
					"embedsidecar token revoke removes it",
					"choose another name: two tokens may be valid while you replace one")
			case err != nil:
				return problem.New(problem.Usage, err)
			}
			if env.out.ForPeople() {
				until := ""
				if !about.Expires.IsZero() {
					until = " until " + about.Expires.UTC().Format(time.RFC3339)
				}
				env.say("token %q with role %s is in %s%s; this is the only time it is shown:", about.Name, about.Role, path, until)
				return env.printf("%s\n", secret)
			}
			type created struct {
				gate.Token

				Secret string `json:"token"`
			}
			return output.One(env.out, created{about, secret}, []string{"name", "role", "id", "limits", "token"},
				about.Name, about.Role, about.ID, about.Limits(), secret)
		}),
	}
}

func newTokenList() *command {
	return &command{
		name: "list", group: groupAdmin, usage: "list who may query or administer",
		description: "ID is the beginning of the token's SHA-256: printf %s TOKEN | sha256sum shows whose token it is. " +
			"For reviews of access.",
		settings: []string{config.GroupQueries},
		run: onTokens(func(env *environment, path string) error {
			list, err := gate.ListTokens(path)
			if err != nil {
				return tokenFailure(err)
			}
			columns := []string{"name", "role", "id", "limits"}
			return output.List(env.out, "tokens", list, columns, func(t *gate.Token) []any {
				return []any{t.Name, t.Role, t.ID, t.Limits()}
			})
		}),
	}
}

func newTokenRevoke() *command {
	return &command{
		name: "revoke", group: groupAdmin, usage: "remove a token from the tokens file", arguments: "NAME", minArgs: 1,
		maxArgs: 1,
		description: "Running programs refuse the token within a few seconds, even if it was the last one. For tokens " +
			"that leaked or are no longer used.",
		settings: []string{config.GroupQueries},
		run: onTokens(func(env *environment, path string) error {
			revoked, err := gate.RevokeTokens(path, env.args[0])
			if err != nil {
				return tokenFailure(err)
			}
			if revoked == 0 {
				return problem.New(problem.NoMatch, fmt.Errorf("%s holds no token %q", path, env.args[0]),
					"embedsidecar token list shows those there are")
			}
			env.say("%s revoked", wording.Count(int64(revoked), "token"))
			return nil
		}),
	}
}

// tokenFailure adds the exit status to an error of the tokens file.
func tokenFailure(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return problem.New(problem.Usage, err, "embedsidecar token create makes it")
	}
	return problem.New(problem.Usage, err)
}
