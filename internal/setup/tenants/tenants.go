// Package tenants finds the databases that a configuration names or matches by a pattern, and the slot of each: slot
// names are unique per server.
package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
)

// Tenant is one of several databases.
type Tenant struct {
	Name   string // for commands, metrics and pages
	OID    int64  // in the server's catalog; 0: configured by name, not looked up
	DSN    string
	Stream string // "": DSN
	Server string // a connection string of its server, for queries about its databases; "": only DSN is known
	Local  string // the database's name on its server, if Server is known
	embed.Terms
}

// Found is the result of a search for databases.
type Found struct {
	List   []Tenant
	Beyond int // number of matching databases beyond the limit
	// Failed is why some servers could not be queried: their databases are unknown.
	Failed error

	unknown []unknown
}

// unknown are the databases of a server that could not be queried.
type unknown struct{ server, match string }

// servers lists system databases that only a pattern equal to their name matches.
var servers = []string{"postgres", "rdsadmin", "cloudsqladmin", "azure_maintenance", "azure_sys"}

// Finder looks for databases repeatedly. It keeps a connection to each server.
type Finder struct {
	Config *config.Config
	Log    *slog.Logger

	pools map[string]*pgxpool.Pool // by connection string
}

// Close ends the connections.
func (f *Finder) Close() {
	for _, pool := range f.pools {
		pool.Close()
	}
	f.pools = nil
}

// Find returns the databases that are configured by name, whether they exist or not, and those that match a pattern.
func (f *Finder) Find(ctx context.Context) Found {
	var found Found
	for i := range f.Config.Databases {
		t := &f.Config.Databases[i]
		if t.Match != "" {
			continue
		}
		one := Tenant{Name: t.Name, Terms: t.Terms, DSN: t.URL, Stream: t.StreamURL}
		if one.DSN == "" {
			one.DSN = config.WithDatabase(f.Config.Database.URL, t.Name)
			one.Stream = f.streamOf(t, t.Name)
			one.Server, one.Local = f.Config.Database.URL, t.Name
		}
		found.List = append(found.List, one)
	}
	for i := range f.Config.Databases {
		if t := &f.Config.Databases[i]; t.Match != "" {
			if err := f.matching(ctx, t, &found); err != nil {
				found.Failed = err
				found.unknown = append(found.unknown, unknown{cmp.Or(t.URL, f.Config.Database.URL), t.Match})
			}
		}
	}
	found.keep(f.Config.Tenants.Limit)
	return found
}

// Nothing returns an error if no database was found, unless a server did not answer: a command that works on none must
// not look like one that found all in order.
func (f Found) Nothing() error {
	if len(f.List) > 0 || f.Failed != nil {
		return nil
	}
	return problem.New(problem.NoMatch, errors.New("no database matches databases[].match"),
		"correct the pattern; templates, and databases that accept no connections, do not count")
}

// keep drops the newest databases beyond the limit, so that a new one does not replace one in use.
func (f *Found) keep(limit int) {
	if f.Beyond = max(len(f.List)-limit, 0); f.Beyond == 0 {
		return
	}
	oldest := slices.SortedStableFunc(slices.Values(f.List), func(a, b Tenant) int { return cmp.Compare(a.OID, b.OID) })
	kept := map[string]bool{}
	for _, t := range oldest[:limit] {
		kept[t.Name] = true
	}
	f.List = slices.DeleteFunc(f.List, func(t Tenant) bool { return !kept[t.Name] })
}

// streamOf returns the connection string for replication of a database; "": that of Tenant.DSN.
func (f *Finder) streamOf(t *config.Tenant, name string) string {
	if stream := cmp.Or(t.StreamURL, f.Config.Database.StreamURL); stream != "" {
		return config.WithDatabase(stream, name)
	}
	return ""
}

// matching adds the databases of a server that match.
func (f *Finder) matching(ctx context.Context, t *config.Tenant, found *Found) error {
	server := cmp.Or(t.URL, f.Config.Database.URL)
	pool, err := f.pool(ctx, server)
	if err != nil {
		return fmt.Errorf("look for databases that match %q: %w", t.Match, err)
	}
	type row struct {
		OID  int64
		Name string
	}
	list, err := database.Collect(ctx, pool, "list_databases", pgx.RowToStructByName[row])
	if err != nil {
		return fmt.Errorf("look for databases that match %q: %w", t.Match, err)
	}
	for _, r := range list {
		taken := func(o Tenant) bool { return o.Name == r.Name && config.WithDatabase(server, r.Name) == o.DSN }
		if !config.Matches(t.Match, r.Name) || t.Match != r.Name && slices.Contains(servers, r.Name) ||
			slices.ContainsFunc(found.List, taken) {
			continue
		}
		one := Tenant{
			Name: r.Name, OID: r.OID, Terms: t.Terms, DSN: config.WithDatabase(server, r.Name), Server: server, Local: r.Name,
		}
		if t.URL == "" || t.StreamURL != "" {
			one.Stream = f.streamOf(t, r.Name)
		}
		if dsn, err := config.ParseDSN(server); err == nil && found.takes(r.Name, server) {
			one.Name = fmt.Sprintf("%s@%s:%d", r.Name, dsn.Host, dsn.Port)
		}
		found.List = append(found.List, one)
	}
	return nil
}

// takes reports whether a name means, or may mean, a database of another server before this one. A server that does not
// answer keeps its names: a name of one of its databases must not lead to another.
func (f *Found) takes(name, server string) bool {
	return slices.ContainsFunc(f.List, func(o Tenant) bool { return o.Name == name }) ||
		slices.ContainsFunc(f.unknown, func(u unknown) bool { return u.server != server && config.Matches(u.match, name) })
}

// Activity is what a server reports about a database without a session in it.
type Activity struct {
	Database string
	Changes  int64  // changes when rows of the database change
	Called   bool   // a session in it waits for a sidecar
	Ours     int    // sessions of this process
	Others   int    // sessions of other sidecars, and commands
	Behind   *int64 // bytes of WAL that the slot has not consumed; nil: the slot is lost, or about to be
}

// Activity queries a server about databases with these slots.
func (f *Finder) Activity(ctx context.Context, server string, databases, slots []string) ([]Activity, error) {
	pool, err := f.pool(ctx, server)
	if err != nil {
		return nil, err
	}
	return database.Collect(ctx, pool, "server_activity", pgx.RowToStructByName[Activity],
		pgx.StrictNamedArgs{"databases": databases, "slots": slots})
}

func (f *Finder) pool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	if pool := f.pools[dsn]; pool != nil {
		return pool, nil
	}
	pool, err := connection.Opener{Config: f.Config.For(dsn, "", f.Config.Slot.Name), Log: f.Log}.Pool(ctx, 1)
	if err != nil {
		return nil, err
	}
	if f.pools == nil {
		f.pools = map[string]*pgxpool.Pool{}
	}
	f.pools[dsn] = pool
	return pool, nil
}

// Settle returns the configuration of one database with its slot: the one it was set up with, or else one named after
// the database's OID, which a rename does not change.
func Settle(ctx context.Context, c *config.Config, t Tenant, log *slog.Logger) (*config.Config, error) {
	one := c.For(t.DSN, t.Stream, c.Slot.Name)
	pool, err := connection.Opener{Config: one, Log: log}.Pool(ctx, 1)
	if err != nil {
		return one, err
	}
	defer pool.Close()
	one.Slot.Name, err = slotOf(ctx, pool, c.Slot.Name)
	return one, err
}

// slotOf returns the name of a database's slot.
func slotOf(ctx context.Context, pool *pgxpool.Pool, begin string) (string, error) {
	var oid int64
	var installed bool
	err := pool.QueryRow(ctx, `SELECT oid::bigint, to_regclass('embedsidecar.lsn_checkpoint') IS NOT NULL
		AND has_schema_privilege(to_regnamespace('embedsidecar'), 'USAGE')
		FROM pg_database WHERE datname = current_database()`).Scan(&oid, &installed)
	if err != nil {
		return "", fmt.Errorf("ask which database it is: %w", err)
	}
	if installed {
		stored, err := database.Collect(ctx, pool, "own_slot", pgx.RowTo[string], pgx.StrictNamedArgs{"slot": begin})
		if err != nil && !database.Denied(err) {
			return "", fmt.Errorf("ask for its slot: %w", err)
		}
		if len(stored) > 0 {
			return stored[0], nil
		}
	}
	return fmt.Sprintf("%s_%d", begin, oid), nil
}

// Choose returns the databases that match a name or pattern. It is an error if none does.
func (f Found) Choose(name string) ([]Tenant, error) {
	var list []Tenant
	names := make([]string, len(f.List))
	for i, t := range f.List {
		names[i] = t.Name
		if t.Name == name || config.IsPattern(name) && config.Matches(name, t.Name) {
			list = append(list, t)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	if f.Failed != nil {
		return nil, f.Failed
	}
	hint := "there is none now"
	if len(names) > 0 {
		hint = "there are: " + strings.Join(names[:min(len(names), mostNamed)], ", ")
	}
	return nil, problem.New(problem.Usage, fmt.Errorf("no database %q is configured or matches", name), hint)
}

// mostNamed limits the databases in a hint.
const mostNamed = 20
