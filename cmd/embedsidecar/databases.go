package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/setup/tenants"
)

// reach is how far a command goes where several databases are configured.
type reach int

const (
	oneDatabase  reach = iota // of those that use a database: it is to be chosen
	eachDatabase              // one after the other, unless some are chosen
	allDatabases              // it does that by itself
)

// databaseFlag chooses among several databases.
func databaseFlag() cli.Flag {
	return section{heading: groupGeneral}.list("database", nil,
		"`NAME` of the database, where several are configured; a pattern such as 'tenant_*', or again for more")
}

// asksDatabase reports whether a command uses a database.
func (c *command) asksDatabase() bool { return slices.Contains(c.settings, config.GroupDatabase) }

// perDatabase runs a command for each database that is meant.
func (p *program) perDatabase(ctx context.Context, cc *cli.Context, env *environment, c *command) error {
	chosen := cc.StringSlice("database")
	if !env.config.Several() {
		if len(chosen) > 0 && c.asksDatabase() {
			return env.onlyDatabase(chosen)
		}
		return c.run(ctx, env)
	}
	if !c.asksDatabase() || c.reach == allDatabases && len(chosen) == 0 {
		return c.run(ctx, env)
	}
	list, failed, err := env.meantDatabases(ctx, chosen, c.reach == eachDatabase && !cc.Bool("watch"))
	if err != nil {
		return err
	}
	if len(list) == 1 && len(chosen) > 0 {
		one, err := env.of(ctx, list[0])
		if err != nil {
			return err
		}
		return c.run(ctx, one)
	}
	if cc.Bool("watch") || c.daemon {
		return misuse("%s is about one database at a time, and %d are meant: --database NAME", c.path(), len(list))
	}
	return errors.Join(env.eachOf(ctx, list, c), failed)
}

// onlyDatabase refuses another database than the one that is configured.
func (e *environment) onlyDatabase(chosen []string) error {
	dsn, err := config.ParseDSN(e.config.Database.URL)
	if err == nil && slices.Equal(chosen, []string{dsn.Database}) {
		return nil
	}
	return fail(exitUsage, fmt.Errorf("--database %s: one database is configured", strings.Join(chosen, ", ")),
		"--database-url names it; several are named by databases in the file, or by --database-url given more than once")
}

// meantDatabases are those that were chosen, or all. failed is why some may be missing.
func (e *environment) meantDatabases(ctx context.Context, chosen []string, all bool,
) (list []tenants.Tenant, failed, err error) {
	finder := tenants.Finder{Config: e.config, Log: e.log}
	defer finder.Close()
	found := finder.Find(ctx)
	switch {
	case len(chosen) == 0 && !all:
		_, err := found.Choose("")
		return nil, nil, fail(exitUsage, errors.New("several databases are configured: choose one with --database NAME"),
			problem.Hints(err)...)
	case len(chosen) == 0 && len(found.List) == 0 && found.Failed != nil:
		return nil, nil, found.Failed
	case len(chosen) == 0:
		return found.List, found.Failed, nil
	}
	for _, name := range chosen {
		some, err := found.Choose(name)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range some {
			if !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	return list, nil, nil
}

// of is what a command sees of the world that works on one of several databases.
func (e *environment) of(ctx context.Context, t tenants.Tenant) (*environment, error) {
	one := *e
	var err error
	if one.config, err = tenants.Settle(ctx, e.config, t, e.log); err != nil {
		return nil, err
	}
	one.log = e.log.With("database", t.Name)
	return &one, nil
}

// answer is what a command says of one of several databases.
type answer struct {
	database string
	data     bytes.Buffer
	err      error
}

// eachOf runs a command for one database after the other. One that fails keeps it from no other.
func (e *environment) eachOf(ctx context.Context, list []tenants.Tenant, c *command) error {
	var answers []*answer
	var failed []error
	for _, t := range list {
		a := &answer{database: t.Name}
		one, err := e.of(ctx, t)
		if err == nil {
			out := *e.out
			out.To = &a.data
			one.out, one.stdout = &out, &a.data
			err = c.run(ctx, one)
		}
		if a.err = err; err != nil {
			failed = append(failed, fmt.Errorf("database %s: %w", t.Name, err))
		}
		answers = append(answers, a)
		if e.out.ForPeople() {
			if err := e.printf("database %s\n%s\n", t.Name, a.text()); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(append(failed, e.showAll(answers))...)
}

// text is the answer for people.
func (a *answer) text() string {
	text := strings.TrimRight(a.data.String(), "\n")
	if a.err != nil {
		text = strings.TrimLeft(text+"\n! "+a.err.Error(), "\n")
	}
	return text + "\n"
}

// showAll writes the answers as one, in the form that programs read.
func (e *environment) showAll(answers []*answer) error {
	switch e.out.Form {
	case output.JSON, output.YAML:
		list := []map[string]any{}
		for _, a := range answers {
			list = append(list, a.document(e.redact.Text))
		}
		return e.out.Show(map[string]any{"databases": list}, nil)
	case output.CSV:
		return e.showCSV(answers)
	case output.Text: // each was shown when it was there
	}
	return nil
}

// document is the answer with the name of its database.
func (a *answer) document(redact func(string) string) map[string]any {
	doc := map[string]any{}
	body := bytes.TrimSpace(a.data.Bytes())
	var list []any
	switch {
	case len(body) == 0:
	case json.Unmarshal(body, &doc) == nil, yaml.Unmarshal(body, &doc) == nil:
	case json.Unmarshal(body, &list) == nil:
		doc = map[string]any{"answer": list}
	default:
		doc = map[string]any{"answer": string(body)}
	}
	doc["database"] = a.database
	if a.err != nil {
		doc["error"] = redact(a.err.Error())
	}
	return doc
}

// showCSV writes one table, whose first column is the database.
func (e *environment) showCSV(answers []*answer) error {
	w := csv.NewWriter(e.stdout)
	for i, a := range answers {
		rows, err := csv.NewReader(&a.data).ReadAll()
		if err != nil || len(rows) == 0 {
			continue
		}
		if i == 0 {
			if err := w.Write(append([]string{"database"}, rows[0]...)); err != nil {
				return err
			}
		}
		for _, row := range rows[1:] {
			if err := w.Write(append([]string{a.database}, row...)); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
