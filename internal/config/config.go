package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Config is everything a user may set, merged and complete: settings.yaml says what each is. Load makes it; Default is
// what it holds when nobody says anything. Nothing changes one that was loaded: another takes its place.
type Config struct {
	Enabled     bool
	Instance    string // in application_name and among the workers
	Database    Database
	Slot        Slot
	Publication Publication
	Databases   []Tenant // where there are several
	Tenant      string   // the only one's name, where it was chosen among several
	Tenants     Tenants
	Plugins     Plugins

	// Models are the named models of the file. A pipeline may also name a model folder that is not listed.
	Models       []Model
	DefaultModel string // a name or a folder; "" for that of the plugin
	Currency     string // of the prices of models; "": not named
	Rerank       string // the reranker of searches, unless a pipeline names another; "": none
	ModelDir     string // "": the usual folders
	// Libraries are files for plugins that load one, by the setting of their manifests.
	Libraries map[string]string
	Threads   int // 0: as many as there are CPUs

	// Pipelines have unique names and unique destinations; their Plugin and Model are filled in.
	Pipelines []pipeline.Spec
	searches  []Search  // what the file says of searching its pipelines, in their order
	schemas   []Schemas // of its pipelines, in their order, as the file has them

	Workers    Workers
	Limits     Limits
	Lease      time.Duration
	Retry      Retry
	History    History
	Ops        Ops
	Queries    Queries
	Admin      Admin
	ControlDir string // see ControlFolder
	Log        Log

	told    map[int][]told    // by model of the file, until all of it is read
	origins map[string]origin // by path of a setting
	file    string            // the file that was read, or ""
	folder  findFolder        // of models; nil: none is looked for
	env     *environ          // for plugins that are allowed to see parts of it
	base    *Config           // what it is without declared pipelines; nil: it has none
	asked   map[string]int64  // the requests by which declared pipelines were changed last, by their names
	written *Config           // as the file has it, where this is what In made of it
	found   []Schema          // of these schemas
	left    Spread            // which In left out
}

// environ stands behind a pointer so that printing a Config does not print it: it may hold secrets of others.
type environ struct{ vars map[string]string }

// Database says where the data is. The PG* variables, the service file and the password file fill in what the strings
// leave out; what a string says wins over them, as with every client of Postgres.
type Database struct {
	URL, URLFile             string // a connection string, as URL or keywords; after Load in URL
	StreamURL, StreamURLFile string // see Stream
	ConnectTimeout           time.Duration
	TrustOwner               string // see TrustedOwners
}

// String shows the database without passwords.
func (d Database) String() string { return RedactDSN(d.URL) }

// GoString keeps %#v from showing what String hides.
func (d Database) GoString() string { return "config.Database{" + d.String() + "}" }

// LogValue shows the database without passwords.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// TrustedOwners returns the roles that TrustOwner names. Without: superusers, the role itself, and roles that may act
// as it are trusted alone.
func (d Database) TrustedOwners() []string {
	var names []string
	for name := range strings.SplitSeq(d.TrustOwner, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Stream returns the connection string to stream with.
func (d Database) Stream() string { return cmp.Or(d.StreamURL, d.URL) }

// Slot is the replication slot.
type Slot struct {
	Name       string
	StopOnLost bool
	NoFailover bool
}

// Tenant is a database among several, or all those whose names match a pattern.
type Tenant struct {
	Name, Match             string
	URL, URLFile, StreamURL string // "": those of Database, with its name
	embed.Terms
}

// String shows the database without passwords.
func (t Tenant) String() string { return cmp.Or(t.Name, t.Match, RedactDSN(t.URL)) }

// GoString keeps %#v from showing what String hides.
func (t Tenant) GoString() string { return "config.Tenant{" + t.String() + "}" }

// Tenants say how much several databases take.
type Tenants struct {
	Limit, Schemas int
	Awake          int           // databases; of more, quiet ones are looked at in turn
	Look           time.Duration // how often at least
}

// Publication is what the server sends.
type Publication struct {
	Name        string
	ColumnLists bool // needs PostgreSQL 15
}

// Plugins are the programs that embed.
type Plugins struct {
	Dir         string   // "": the usual folders
	Default     string   // a name or a path
	Catalog     []Plugin // tells more about some plugins; the first of a name counts
	CatalogFile string   // of registered ones; "": catalog.yaml in the folder of plugins
}

// Plugin is one entry of the catalog.
type Plugin struct {
	Name    string
	Path    string   // of the program; "": looked for by name
	SHA256  string   // of the program; "": not checked
	Env     []string // names of variables it may see, besides EMBEDSIDECAR_PLUGIN_*
	Version string   // what the plugin called itself when it was written down; plugins list compares it
	// Processes is how many of its processes may run for each model. 0: one.
	Processes   int
	MemoryLimit int64 // resident bytes of each process; 0: no limit
	// CallTimeout is how long one of its calls may be without an answer before it is taken to hang, beside what texts
	// and bytes add. 0: 30 s, or what a timeout of the plugin's own requests asks for.
	CallTimeout time.Duration
	// Registered tells that it is of the catalogue's file. Load does not read it: its place depends on a Finder.
	Registered bool
}

// Model is a named model.
type Model struct {
	Name    string
	Plugin  string  // "" before Load is done: Plugins.Default
	Path    string  // its folder; "": looked for by name
	SHA256  string  // of its weights; "": not checked
	Threads int     // 0: Config.Threads
	Price   float64 // of a million tokens, in Config.Currency; 0: not known
	Budget  pipeline.Budget
	// of a million tokens in batch jobs; 0: half of Price
	BatchPrice float64
	Settings   ModelSettings
}

// Workers embed.
type Workers struct {
	Count        int // 0: 3, so that others are read and written while one is embedded
	BatchRows    int
	Direct       bool
	CacheBytes   int64 // of each model
	DrainTimeout time.Duration
}

// Limits are the most that a process works, in a second or at once; 0: as much as it can.
type Limits struct {
	Rows, Tokens                 int
	BackfillRows, BackfillTokens int
	InWork                       int // rows at once
}

// Retry says how often and when a failed task is tried again. Only errors of the data use up attempts.
type Retry struct {
	MaxAttempts   int
	Initial, Max  time.Duration
	FailedOnStart bool
	Priority      string // of a row that failed; "same": it keeps its own
}

// History is what is kept of finished tasks.
type History struct {
	Keep time.Duration
	Rows int
}

// Ops is the listener for probes and metrics. It changes nothing.
type Ops struct{ Listen string }

// Queries is the listener that embeds and searches for anyone who may ask. It changes nothing.
type Queries struct {
	Listen        string // "": no listener (serve: 127.0.0.1:7470)
	TokensFile    string
	NoAuth        bool
	Cert, Key     string
	SearchTimeout time.Duration
}

// Admin is the listener for administrators. Who may come in is in Queries.TokensFile.
type Admin struct {
	Listen                        string
	Cert, Key, ClientCA, BasePath string
	ReadOnly, ShowRowText         bool
}

// Search is what those may see who search a pipeline over HTTP.
type Search struct {
	Filterable      []string
	PastRowSecurity bool   // row_security: ignore
	Rerank          string // the model that reranks; "": none
}

// Log says what is logged.
type Log struct {
	Level  slog.Level
	Format string
	Output string
}

// findFolder finds the folder of a model.
type findFolder func(name, dir string, known ...string) (string, error)

// Default returns the configuration of somebody who has set nothing.
func Default() *Config {
	return &Config{
		Enabled:     true,
		Database:    Database{ConnectTimeout: time.Minute},
		Slot:        Slot{Name: "embedsidecar"},
		Publication: Publication{Name: "embedsidecar"},
		Tenants:     Tenants{Limit: 200, Schemas: 1000, Awake: 20, Look: 5 * time.Minute},
		Plugins:     Plugins{Default: manifest.Default().Name},
		Libraries:   map[string]string{},
		Workers: Workers{
			BatchRows: pipeline.DefaultBatchRows, Direct: true, CacheBytes: pipeline.DefaultCacheBytes,
			DrainTimeout: pipeline.DefaultDrainTimeout,
		},
		Queries: Queries{SearchTimeout: 10 * time.Second},
		Lease:   pipeline.DefaultLease,
		Retry: Retry{
			MaxAttempts: pipeline.DefaultMaxAttempts, Initial: pipeline.DefaultFirstRetry,
			Max: pipeline.DefaultLongestRetry, Priority: "same",
		},
		History: History{Keep: pipeline.DefaultHistory, Rows: pipeline.DefaultHistoryRows},
		Log:     Log{Level: slog.LevelInfo, Format: "auto", Output: "stderr"},
		origins: map[string]origin{},
		env:     &environ{},
	}
}

// put sets what a setting at a path has as its value, or as the items of a list. Without a setting it makes the element
// of a list that the path names.
func (c *Config) put(s *Setting, path string, values []string, list bool) error {
	owner := c.owner(path)
	switch {
	case s == nil:
		return nil
	case types[s.Type] == nil && itemTypes[s.Type] == nil: // it is for the plugin of a model
		at, _, name := elementOf(path)
		if c.told == nil {
			c.told = map[int][]told{}
		}
		c.told[at] = append(c.told[at], told{name, values})
		return nil
	case list:
		return s.putList(owner, values)
	}
	return s.put(owner, values[0])
}

// elementOf takes the path of an element of a list apart; i is below 0 for another path.
func elementOf(path string) (i int, list, name string) {
	list, rest, is := strings.Cut(path, "[")
	number, name, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if !is || err != nil {
		return -1, "", path
	}
	return i, list, strings.TrimPrefix(name, ".")
}

// owner returns what a setting at a path is a part of: the configuration, or an element of a list, which is made where
// it is not there.
func (c *Config) owner(path string) reflect.Value {
	switch i, list, name := elementOf(path); {
	case i < 0:
		return reflect.ValueOf(c).Elem()
	case list == "databases":
		return element(&c.Databases, i, Tenant{Terms: embed.Terms{Weight: 1}})
	case list == "models":
		return element(&c.Models, i, Model{})
	case list == "plugins.catalog":
		return element(&c.Plugins.Catalog, i, Plugin{})
	case strings.HasPrefix(name, "schemas."):
		return element(&c.schemas, i, Schemas{})
	case strings.HasPrefix(name, "search."):
		return element(&c.searches, i, Search{})
	default:
		return element(&c.Pipelines, i, newSpec())
	}
}

func element[T any](list *[]T, i int, fresh T) reflect.Value {
	for len(*list) <= i {
		*list = append(*list, fresh)
	}
	return reflect.ValueOf(&(*list)[i]).Elem()
}

// count returns how many elements a list has.
func (c *Config) count(list string) int {
	switch list {
	case "databases":
		return len(c.Databases)
	case "models":
		return len(c.Models)
	case "plugins.catalog":
		return len(c.Plugins.Catalog)
	}
	return len(c.Pipelines)
}

// Origin tells where a setting was made: "--slot", "EMBEDSIDECAR_SLOT", "embedsidecar.yaml:3:9" or "default".
func (c *Config) Origin(path string) string { return cmp.Or(c.origins[path].place, "default") }

// ControlFolder is where the sidecars of this user have their control sockets.
func (c *Config) ControlFolder() string {
	if c.ControlDir != "" {
		return absolute(c.ControlDir)
	}
	if dir := c.env.vars["XDG_RUNTIME_DIR"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, "embedsidecar")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("embedsidecar-%d", os.Getuid()))
}

// File returns the file that was read, or "".
func (c *Config) File() string { return c.file }

// Redactor returns one that knows the passwords and keys of this configuration.
func (c *Config) Redactor() *Redactor {
	known := []string{c.Database.URL, c.Database.StreamURL}
	for i := range c.Databases {
		known = append(known, c.Databases[i].URL, c.Databases[i].StreamURL)
	}
	return NewRedactor(known...).with(c.keys()...)
}

// ApplicationName is how the sessions of this sidecar show in pg_stat_activity.
func (c *Config) ApplicationName() string {
	const limit = 63 // Postgres cuts longer ones
	name := "embedsidecar/" + c.Instance
	return name[:min(len(name), limit)]
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
