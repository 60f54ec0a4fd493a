// Package tenants finds the databases that a configuration names, or matches by a pattern, and the slot of each: names
// of slots are those of the whole server.
package tenants

import (
	"cmp"
	"context"
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

// Tenant is a database among several.
type Tenant struct {
	Name   string // that commands, metrics and pages have
	OID    int64  // its number on its server; 0: it is named, and not looked for
	DSN    string
	Stream string // "": DSN
	Server string // a connection string of it, by which it tells of its databases; "": the DSN is all that is known
	Local  string // the name on its server, where Server is known
	embed.Terms
}

// Found are the databases that there are now.
type Found struct {
	List   []Tenant
	Beyond int // databases that match and are beyond the limit
	// Failed is why some servers could not be asked: of the databases that they may have nothing is known.
	Failed error
}

// servers have databases that match no pattern but one that is their whole name.
var servers = []string{"postgres", "rdsadmin", "cloudsqladmin", "azure_maintenance", "azure_sys"}

// Finder looks for databases again and again. It keeps a connection to each server that it asks.
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

// Find looks which databases there are: those that are named, whether they are there or not, and those that match.
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
			}
		}
	}
	found.keep(f.Config.Tenants.Limit)
	return found
}

// keep leaves out what is beyond the limit: the newest databases, so that one that comes displaces none that is worked.
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

// streamOf is the connection string for replication of a database; "": the usual one.
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
		if slices.ContainsFunc(found.List, func(o Tenant) bool { return o.Name == r.Name }) { // of another server
			if dsn, err := config.ParseDSN(server); err == nil {
				one.Name = fmt.Sprintf("%s@%s:%d", r.Name, dsn.Host, dsn.Port)
			}
		}
		found.List = append(found.List, one)
	}
	return nil
}

// Activity is what a server tells of a database without a session in it.
type Activity struct {
	Database string
	Changes  int64  // another number: rows have changed there
	Called   bool   // a session waits there for a sidecar
	Ours     int    // sessions of this program
	Others   int    // of other sidecars, and commands
	Behind   *int64 // WAL in bytes that the slot was not asked for; nil: it is gone, or about to be
}

// Activity asks a server for what it tells of databases with these slots.
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

// Settle returns the configuration of one database: with its slot, which is the one that it was set up with, or else
// one that is named after its number, which stays when it is renamed.
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

// Choose returns those that a name means, or a pattern of names. It is an error if there is none.
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

// mostNamed is how many databases a hint names.
const mostNamed = 20
