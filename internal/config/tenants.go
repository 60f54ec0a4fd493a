package config

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Several reports whether there may be more than one database.
func (c *Config) Several() bool { return len(c.Databases) > 0 }

// For returns the configuration of one of several databases.
func (c *Config) For(dsn, stream, slot string) *Config {
	one := *c
	one.Databases = nil
	one.Database.URL, one.Database.StreamURL, one.Slot.Name = dsn, stream, slot
	one.Pipelines, one.searches, one.schemas = slices.Clone(c.Pipelines), slices.Clone(c.searches), slices.Clone(c.schemas)
	one.origins = maps.Clone(c.origins)
	return &one
}

// DatabaseName returns the configured name of the only database, or its name on the server.
func (c *Config) DatabaseName() string {
	if c.Tenant != "" {
		return c.Tenant
	}
	dsn, err := ParseDSN(c.Database.URL)
	if err != nil {
		return ""
	}
	return dsn.Database
}

// WithDatabase returns a connection string for another database of the same server.
func WithDatabase(dsn, name string) string {
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		if !strings.HasPrefix(dsn, scheme) {
			continue
		}
		u, err := url.Parse(dsn)
		if err != nil { // it is invalid anyway
			return dsn
		}
		u.Path, u.RawPath = "/"+name, ""
		q := u.Query()
		q.Del("dbname")
		q.Del("database")
		u.RawQuery = q.Encode()
		return u.String()
	}
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
	return strings.TrimSpace(dsn + " dbname='" + quoted + "'")
}

// Renew returns a connection string as its file has it now, if it comes from a file. dsn may name another database of
// that server.
func (d Database) Renew(dsn string) string {
	for text, file := range d.files {
		if text != dsn {
			if c, err := ParseDSN(dsn); err != nil || WithDatabase(text, c.Database) != dsn {
				continue
			}
		}
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) != "" {
			return strings.TrimSpace(string(text))
		}
	}
	return dsn
}

// tenants reads the list of databases: from the file, or from a repeated --database-url.
func (l *loader) tenants() {
	c := l.cfg
	if urls := l.src.Flags["database-url"]; len(urls) > 1 {
		c.Databases = nil
		for _, dsn := range urls {
			c.Databases = append(c.Databases, Tenant{URL: dsn, Terms: embed.Terms{Weight: 1}})
		}
		for i := range c.Databases {
			c.origins[index("databases", i)] = origin{place: "--database-url"}
		}
	}
	for i := range c.Databases {
		t := &c.Databases[i]
		if t.URLFile != "" && t.URL == "" {
			path := index("databases", i) + ".url_file"
			l.secret(path, t.URLFile, &t.URL)
		}
		if t.Name != "" || t.Match != "" || t.URL == "" {
			continue
		}
		if dsn, err := ParseDSN(t.URL); err == nil {
			t.Name = dsn.Database
			if slices.ContainsFunc(c.Databases[:i], func(other Tenant) bool { return other.Name == t.Name }) {
				t.Name = fmt.Sprintf("%s@%s:%d", dsn.Database, dsn.Host, dsn.Port)
			}
		}
	}
}

// checkTenants checks the list of databases.
func (c *Config) checkTenants(fail func(path, format string, args ...any)) {
	const derived = len("_4294967295") // suffix of the derived slot names
	if c.Several() && len(c.Slot.Name)+derived > maxIdent {
		fail("slot.name", "with several databases it has at most %d bytes: the slot of each is named after it", maxIdent-derived)
	}
	for i := range c.Databases {
		t, path := &c.Databases[i], index("databases", i)
		switch {
		case t.Name != "" && t.Match != "":
			fail(path+".match", "name and match exclude each other: one database, or all that match")
		case t.Name == "" && t.Match == "" && t.URL == "":
			fail(path, "it names no database: give name, match or url")
		case t.URL != "" && t.URLFile != "" && c.Origin(path+".url") != "default":
			fail(path+".url", "it excludes %s: give one of them", path+".url_file")
		case t.Name != "" && IsPattern(t.Name):
			fail(path+".name", "%q is a pattern: write match", t.Name)
		case t.Name != "" && slices.ContainsFunc(c.Databases[:i], func(o Tenant) bool { return o.Name == t.Name }):
			fail(path+".name", "the name %q is given twice", t.Name)
		}
		for _, dsn := range []struct{ key, value string }{{"url", t.URL}, {"stream_url", t.StreamURL}} {
			if _, err := ParseDSN(dsn.value); dsn.value != "" && err != nil {
				fail(path+"."+dsn.key, "%s", err)
			}
		}
	}
}
