package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/secret"
)

// ParseDSN reads a connection string, in its URL or keyword form. The PG* variables, the service file and the password
// file fill in what it leaves out, as in every client of Postgres. Its errors contain no password.
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err == nil && !severed(dsn, cfg) {
		return cfg, nil
	}
	if strings.TrimSpace(dsn) == "" {
		return nil, fmt.Errorf("connection settings of the PG* variables: %s", reason(dsn, err))
	}
	return nil, fmt.Errorf("connection string %s: %s", RedactDSN(dsn), reason(dsn, err))
}

// severed reports whether a special character in a password has split it, so that its end was parsed as part of the
// host or the database.
func severed(dsn string, cfg *pgx.ConnConfig) bool {
	// a socket may begin with @
	return unclear(dsn) && (strings.ContainsAny(cfg.Database, "@/") || strings.LastIndexByte(cfg.Host, '@') > 0)
}

// letters are the characters in names of drivers.
const letters = "abcdefghijklmnopqrstuvwxyz0123456789_"

// unclear reports whether a connection string is a URL with ambiguous parts.
func unclear(dsn string) bool { return strings.HasSuffix(RedactDSN(dsn), "://"+secret.Mask) }

// reason returns pgx's error about a connection string, without the string. If the string's structure is unclear, it
// quotes nothing, because any part could be a password.
func reason(dsn string, err error) string {
	redacted := RedactDSN(dsn)
	if scheme, _, is := strings.Cut(dsn, "://"); is {
		if kept, driver, named := strings.Cut(scheme, "+"); named && strings.Trim(driver, letters) == "" &&
			(kept == "postgres" || kept == "postgresql") {
			return fmt.Sprintf("drop +%s, which is SQLAlchemy's name of a driver: %s://...", driver, kept)
		}
	}
	if unclear(dsn) {
		return "its parts cannot be told apart: write special characters of the password as %XX (@ is %40, / is %2F, : is %3A)"
	}
	if redacted == secret.Mask {
		return "neither a URL (postgres://user@host/database) nor a list of keywords (host=... dbname=...)"
	}
	text := err.Error()
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if _, after, ok := strings.Cut(text, "`: "); ok {
			text = after
		}
	}
	return NewRedactor(dsn).Text(text)
}

// NamesDatabase reports whether the user named a database, here or in the environment variables of Postgres clients.
func (c *Config) NamesDatabase(environ []string) bool {
	return c.Database.URL != "" || slices.ContainsFunc(environ, func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return value != "" && slices.Contains([]string{"PGHOST", "PGPORT", "PGDATABASE", "PGSERVICE", "PGUSER"}, name)
	})
}
