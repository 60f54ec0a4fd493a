package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"tenant_*", "tenant_a", true},
		{"tenant_*", "tenant_", true},
		{"tenant_*", "tenants", false},
		{"*", "", true},
		{"a*b*c", "a-bb-c", true},
		{"a*b*c", "a-c-b", false},
		{"t?", "tä", true},
		{"t?", "t", false},
		{"plain", "plain", true},
		{"plain", "plain2", false},
		{"a/*", "a/b/c", true},
	} {
		if got := Matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("Matches(%q, %q) = %t", tt.pattern, tt.name, got)
		}
	}
}

// A star matches any text that was cut out of a name.
func TestMatches_AStarStandsForAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.StringMatching(`[^*?]*`)
		before, between, after := plain.Draw(t, "a"), rapid.String().Draw(t, "b"), plain.Draw(t, "c")
		if !Matches(before+"*"+after, before+between+after) {
			t.Error("it does not match")
		}
	})
}

// With any database name, the string leads to that database on the same server.
func TestWithDatabase_LeadsToIt(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://me:p%40ss@host:5433/postgres?sslmode=disable", "postgresql://me@host:5433", "",
		"postgres://me@host:5433/x?dbname=y", "host=host port=5433 user=me dbname=postgres",
	} {
		for _, name := range []string{"tenant_a", `we'ird \ " name`, "a b", "ä?&=#%2F", "UPPER"} {
			c, err := ParseDSN(WithDatabase(dsn, name))
			if err != nil {
				t.Errorf("%q with %q: %v", dsn, name, err)
				continue
			}
			if c.Database != name || dsn != "" && (c.Host != "host" || c.Port != 5433 || c.User != "me") {
				t.Errorf("%q with %q leads to %s on %s:%d as %s", dsn, name, c.Database, c.Host, c.Port, c.User)
			}
		}
	}
}

func TestDatabases(t *testing.T) {
	t.Parallel()
	load := func(file string, flags map[string][]string) (*Config, error) {
		if flags == nil {
			flags = map[string][]string{}
		}
		if file != "" {
			flags["config"] = []string{write(t, file)}
		}
		c, _, err := Load(Source{Flags: flags})
		return c, err
	}
	c, err := load("databases: [{match: 'tenant_*', weight: 2}, {name: other}, {url: postgres://me@elsewhere/far}]", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Several() || len(c.Databases) != 3 || c.Databases[0].Weight != 2 || c.Databases[1].Weight != 1 ||
		c.Databases[2].Name != "far" {
		t.Errorf("%+v", c.Databases)
	}
	one := c.For("postgres://me@host/tenant_a", "", "slot_1")
	if one.Several() || one.Slot.Name != "slot_1" || c.Slot.Name == one.Slot.Name || !c.Several() {
		t.Errorf("of one database: %+v", one)
	}
	c, err = load("", map[string][]string{"database-url": {"postgres://h/a", "postgres://h/b", "postgres://i/a"}})
	if err != nil || len(c.Databases) != 3 || c.Databases[0].Name != "a" || c.Databases[1].Name != "b" ||
		!strings.HasPrefix(c.Databases[2].Name, "a@i:") || c.Database.URL != "postgres://h/a" {
		t.Errorf("%+v, %v", c, err)
	}
	for file, want := range map[string]string{
		"databases: [{name: a, match: 'a*'}]":                                   "exclude",
		"databases: [{weight: 2}]":                                              "names no database",
		"databases: [{name: 'a*'}]":                                             "write match",
		"databases: [{name: a}, {name: a}]":                                     "twice",
		"databases: [{name: a, weight: 0}]":                                     "from 1",
		"databases: [{name: a, url: 'postgres://[', url_file: /none}]":          "databases[0]",
		"databases: [{name: a}]\nslot: {name: " + strings.Repeat("s", 60) + "}": "slot.name",
	} {
		if _, err := load(file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to tell of %q", file, err, want)
		}
	}
}

// A password that changes is read again from the file that held it, for each of several databases.
func TestRenew_EachDatabaseHasItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, password string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("postgres://"+name+":"+password+"@host/x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	text := fmt.Sprintf("database: {url_file: %s}\ndatabases: [{match: 't*'}, {name: a, url_file: %s}, "+
		"{match: 'b*', url_file: %s}]", write("all", "old"), write("a", "old"), write("b", "old"))
	file := filepath.Join(dir, "file.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(Source{Flags: map[string][]string{"config": {file}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"all", "a", "b"} {
		write(name, "new")
		dsn := "postgres://" + name + ":old@host/x"
		for _, dsn := range []string{dsn, WithDatabase(dsn, "t1")} {
			if got := c.For(dsn, "", "slot").Database.Renew(dsn); !strings.Contains(got, name+":new@") {
				t.Errorf("%s: %s", dsn, got)
			}
		}
	}
	if other := "postgres://all:old@other/x"; c.Database.Renew(other) != other {
		t.Errorf("%s is not from a file", other)
	}
}
