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

// Config is the merged and complete configuration; settings.yaml describes its fields. Load makes it, and Default
// returns the defaults. A loaded Config is immutable: changes make another one.
type Config struct {
	Enabled     bool
	Instance    string // in application_name and in the list of workers
	Database    Database
	Slot        Slot
	Publication Publication
	Databases   []Tenant // in case of several
	Tenant      string   // the name of this one, if it was chosen among several
	Tenants     Tenants
	Plugins     Plugins

	// Models are the named models of the file. A pipeline may also name an unlisted model folder.
	Models       []Model
	DefaultModel string // a name or a folder; "": the plugin's default
	Currency     string // of the models' prices; "": not set
	Rerank       string // the default reranker of searches; "": none
	ModelDir     string // "": the default folders
	// Libraries are the libraries that plugins load, by the setting in their manifests.
	Libraries map[string]string
	Threads   int // 0: the number of CPUs

	// Pipelines have unique names and unique destinations; their Plugin and Model are set.
	Pipelines []pipeline.Spec
	searches  []Search  // per pipeline of the file
	schemas   []Schemas // per pipeline of the file

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

	told    map[int][]told    // plugin settings by index of the model, until the file is read
	origins map[string]origin // where each setting was made, by path
	file    string            // the file that was read, or ""
	folder  findFolder        // finds model folders; nil: none
	env     *environ          // for plugins that may see parts of it
	base    *Config           // without declared pipelines; nil: there are none
	asked   map[string]int64  // the last request that changed each declared pipeline, by name
	written *Config           // the configuration of the file from which In made this one
	found   []Schema          // the schemas that In got
	left    Spread            // what In left out
}

// environ is a separate type so that printing a Config does not print it: it may hold others' secrets.
type environ struct{ vars map[string]string }

// Database is the connection to the database. The PG* variables, the service file and the password file fill in what
// the strings leave out, as in every client of Postgres.
type Database struct {
	URL, URLFile             string // a connection string, as URL or keywords; Load reads the file into URL
	StreamURL, StreamURLFile string // see Stream
	ConnectTimeout           time.Duration
	TrustOwner               string // see TrustedOwners

	files map[string]string // of connection strings that Load read from files, also of several databases
}

// String returns the URL without passwords.
func (d Database) String() string { return RedactDSN(d.URL) }

// GoString hides in %#v what String hides.
func (d Database) GoString() string { return "config.Database{" + d.String() + "}" }

// LogValue returns the URL without passwords.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// TrustedOwners returns the roles in TrustOwner. Superusers, the role itself, and roles that may act as it are always
// trusted.
func (d Database) TrustedOwners() []string {
	var names []string
	for name := range strings.SplitSeq(d.TrustOwner, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Stream returns the connection string for replication.
func (d Database) Stream() string { return cmp.Or(d.StreamURL, d.URL) }

// Slot is the replication slot.
type Slot struct {
	Name       string
	StopOnLost bool
	NoFailover bool
}

// Tenant is one of several databases, or a pattern of names.
type Tenant struct {
	Name, Match             string
	URL, URLFile, StreamURL string // "": those of Database, with this database name
	embed.Terms
}

// String returns the name, pattern or URL without passwords.
func (t Tenant) String() string { return cmp.Or(t.Name, t.Match, RedactDSN(t.URL)) }

// GoString hides in %#v what String hides.
func (t Tenant) GoString() string { return "config.Tenant{" + t.String() + "}" }

// Tenants are the limits for several databases.
type Tenants struct {
	Limit, Schemas int
	Awake          int           // databases with permanent connections; beyond it, quiet ones are polled
	Look           time.Duration // how often at least
}

// Publication configures the publication.
type Publication struct {
	Name        string
	ColumnLists bool // needs PostgreSQL 15
}

// Plugins configures the programs that embed.
type Plugins struct {
	Dir         string   // "": the default folders
	Default     string   // a name or a path
	Catalog     []Plugin // additional information about plugins; the first entry of a name applies
	CatalogFile string   // of registered plugins; "": catalog.yaml in the plugin folder
}

// Plugin is an entry of the catalog.
type Plugin struct {
	Name    string
	Path    string   // of the program; "": found by name
	SHA256  string   // of the program; "": not checked
	Env     []string // names of variables that it gets, besides EMBEDSIDECAR_PLUGIN_*
	Version string   // reported by the plugin at registration; plugins list compares it
	// Processes is the number of processes per model. 0: one.
	Processes   int
	MemoryLimit int64 // resident bytes of each process; 0: no limit
	// CallTimeout limits a call, in addition to the time for its texts and bytes, and a start if it is more than 60 s.
	// 0: 30 s, or more if the timeout of the plugin's own requests needs it.
	CallTimeout time.Duration
	// Registered says that the entry comes from the catalog file. Load does not read that file: its path depends on a
	// Finder.
	Registered bool
}

// Model is a named model.
type Model struct {
	Name    string
	Plugin  string  // "" while loading: Plugins.Default
	Path    string  // its folder; "": found by name
	SHA256  string  // of its weights; "": not checked
	Threads int     // 0: Config.Threads
	Price   float64 // per million tokens, in Config.Currency; 0: unknown
	Budget  pipeline.Budget
	// per million tokens in batch jobs; 0: half of Price
	BatchPrice float64
	Settings   ModelSettings
}

// Workers configures the processing of tasks.
type Workers struct {
	Count        int // 0: 3, so that some batches are read and written while one is embedded
	BatchRows    int
	Direct       bool
	CacheBytes   int64 // per model
	DrainTimeout time.Duration
}

// Limits are the maximum throughput of a process; 0: unlimited.
type Limits struct {
	Rows, Tokens                 int
	BackfillRows, BackfillTokens int
	InWork                       int // rows at the same time
}

// Retry says how often and when a failed task is retried. Only errors of the data count as attempts.
type Retry struct {
	MaxAttempts   int
	Initial, Max  time.Duration
	FailedOnStart bool
	Priority      string // of a failed row; "same": unchanged
}

// History configures how long finished tasks are kept.
type History struct {
	Keep time.Duration
	Rows int
}

// Ops is the listener for probes and metrics. It is read-only.
type Ops struct{ Listen string }

// Queries is the listener for embedding and searching. It is read-only.
type Queries struct {
	Listen        string // "": no listener (serve: 127.0.0.1:7470)
	TokensFile    string
	NoAuth        bool
	Cert, Key     string
	SearchTimeout time.Duration
}

// Admin is the listener for administrators. Its tokens are in Queries.TokensFile.
type Admin struct {
	Listen                        string
	Cert, Key, ClientCA, BasePath string
	ReadOnly, ShowRowText         bool
}

// Search configures what HTTP searches of a pipeline may see.
type Search struct {
	Filterable      []string
	PastRowSecurity bool   // row_security: ignore
	Rerank          string // the model that reranks; "": none
}

// Log configures the log.
type Log struct {
	Level  slog.Level
	Format string
	Output string
}

// findFolder finds the folder of a model.
type findFolder func(name, dir string, known ...string) (string, error)

// Default returns the default configuration.
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

// put sets the setting at a path to a value, or to the items of a list. Without a setting it makes the list element at
// the path.
func (c *Config) put(s *Setting, path string, values []string, list bool) error {
	owner := c.owner(path)
	switch {
	case s == nil:
		return nil
	case types[s.Type] == nil && itemTypes[s.Type] == nil: // it is for a model's plugin
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

// elementOf splits the path of a list element; i is below 0 for other paths.
func elementOf(path string) (i int, list, name string) {
	list, rest, is := strings.Cut(path, "[")
	number, name, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if !is || err != nil {
		return -1, "", path
	}
	return i, list, strings.TrimPrefix(name, ".")
}

// owner returns the owner of the setting at a path: the configuration, or a list element, which it makes if missing.
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

// count returns the number of elements of a list.
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

// Origin returns where a setting was made: "--slot", "EMBEDSIDECAR_SLOT", "embedsidecar.yaml:3:9" or "default".
func (c *Config) Origin(path string) string { return cmp.Or(c.origins[path].place, "default") }

// ControlFolder returns the folder of the control sockets of this user's sidecars.
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

// Redactor returns a Redactor for the passwords and keys of this configuration.
func (c *Config) Redactor() *Redactor {
	known := []string{c.Database.URL, c.Database.StreamURL}
	for i := range c.Databases {
		known = append(known, c.Databases[i].URL, c.Databases[i].StreamURL)
	}
	return NewRedactor(known...).with(c.keys()...)
}

// ApplicationName is the name of this sidecar's sessions in pg_stat_activity.
func (c *Config) ApplicationName() string {
	const limit = 63 // Postgres truncates longer ones
	name := "embedsidecar/" + c.Instance
	return name[:min(len(name), limit)]
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
