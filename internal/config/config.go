package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Config is everything a user may set, merged and complete. Load makes it; Default is what it holds when nobody says
// anything. Changes take effect at the next start.
type Config struct {
	// Enabled is the master switch. False: changes are still queued and nothing is embedded. Default true.
	Enabled bool
	// Instance names this sidecar among others, in application_name and among the workers. Default: the host's name and
	// the process's number.
	Instance string

	Database    Database
	Slot        Slot
	Publication Publication
	Plugins     Plugins

	// Models are the named models of the file. A pipeline may also name a model folder that is not listed.
	Models []Model
	// DefaultModel is the model of pipelines that name none: a name or a folder. Default: "" for that of the plugin.
	DefaultModel string
	// ModelSHA256 is what the weights of DefaultModel must hash to, 64 hexadecimal digits. Default "": not checked.
	ModelSHA256 string
	// ModelDir is where models are looked for by name, instead of the usual folders. Default "": the usual ones.
	ModelDir string
	// Hub is where models pull fetches from. Default: the public hub that most models are published on.
	Hub string
	// Libraries are files for plugins that load one, by the setting of their manifests. Default: none, they are looked
	// for in the usual folders.
	Libraries map[string]string
	// Threads is how many threads an embedder may use. Default 0: as many as there are CPUs.
	Threads int

	// Pipelines have unique names and unique destinations; their Plugin and Model are filled in.
	Pipelines []pipeline.Spec
	// searches are what the file says of searching its pipelines, in their order.
	searches []Search

	Workers Workers
	// Lease is for how long a worker may keep a task without a sign of life before another takes it over. Default 30s.
	Lease   time.Duration
	Retry   Retry
	Ops     Ops
	Queries Queries
	Admin   Admin
	// ControlDir is the folder for control sockets; it must belong to the user alone. Default "": one of this user's.
	ControlDir string
	Log        Log

	settling []*told // by model of the file

	origins map[string]string // path of a setting -> where it was set, for messages
	file    string            // the file that was read, or ""
	env     *environ          // for plugins that are allowed to see parts of it
}

// environ stands behind a pointer so that printing a Config does not print it: it may hold secrets of others.
type environ struct{ vars map[string]string }

// Database says where the data is. The PG* variables, the service file and the password file fill in what the strings
// leave out; what a string says wins over them, as with every client of Postgres.
type Database struct {
	// URL is a connection string, as URL or keywords. Default "": all from the PG* variables.
	URL string
	// StreamURL is the connection string for replication, for when URL leads through a pooler or another role streams.
	// Default "": URL.
	StreamURL string
	// ConnectTimeout is for how long run waits at its start for a server that cannot be reached. Default 60s.
	ConnectTimeout time.Duration
	// TrustOwner are names of roles, with commas between: what they own in the database may be used as if it were the
	// role's own, so that they can do all that it may. Default "": only superusers, the role itself, and roles that may
	// act as it.
	TrustOwner string

	urlFile, streamURLFile string
}

// String shows the database without passwords.
func (d Database) String() string { return RedactDSN(d.URL) }

// GoString keeps %#v from showing what String hides.
func (d Database) GoString() string { return "config.Database{" + d.String() + "}" }

// LogValue shows the database without passwords.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// TrustedOwners returns the roles that TrustOwner names.
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
func (d Database) Stream() string {
	if d.StreamURL != "" {
		return d.StreamURL
	}
	return d.URL
}

// Slot is the replication slot.
type Slot struct {
	// Name is up to 63 of a-z, 0-9 and _. Default "embedsidecar".
	Name string
	// StopOnLost says what to do when the slot is gone or has a gap: false (on_lost: reconcile, the default) makes a new
	// one and compares every row; true (on_lost: stop) refuses to go on.
	StopOnLost bool
	// NoFailover (failover: off) makes a slot that standbys keep no copy of; otherwise (failover: auto, the default) one
	// that they may copy, from PostgreSQL 17 on.
	NoFailover bool
}

// Publication is what the server sends.
type Publication struct {
	// Name is up to 63 bytes. Default "embedsidecar".
	Name string
	// ColumnLists publishes only the columns that are read. Needs PostgreSQL 15; it can make a user's own UPDATE or ALTER
	// fail. Default false.
	ColumnLists bool
}

// Plugins are the programs that embed.
type Plugins struct {
	// Dir is where plugins are looked for by name, instead of the usual folders. Default "": the usual ones.
	Dir string
	// Default is the plugin of pipelines and models that name none: a name or a path. Default: the one whose manifest says
	// so.
	Default string
	// SHA256 is what the program of Default must hash to, 64 hexadecimal digits. Default "": not checked.
	SHA256 string
	// Catalog tells more about some plugins.
	Catalog []Plugin
	// CatalogFile is the file of registered plugins. Default "": catalog.yaml in the folder of plugins.
	CatalogFile string
	// Registered are the plugins of that file. Load does not read it: its place depends on a Finder.
	Registered []Plugin
}

// Plugin is one entry of the catalog.
type Plugin struct {
	Name   string
	Path   string   // of the program; "": looked for by name
	SHA256 string   // 64 hexadecimal digits; "": not checked
	Env    []string // names of variables it may see, besides EMBEDSIDECAR_PLUGIN_*
	// Version is what the plugin called itself when it was written down. It is shown, and compared by plugins verify.
	Version string
	// Processes is how many of its processes may run for each model. 0: one. At most 64.
	Processes int
	// MemoryLimit is the most resident memory of each of its processes, in bytes. 0: no limit.
	MemoryLimit int64
	// CallTimeout is how long one of its calls may be without an answer before it is taken to hang, beside what texts
	// and bytes add. 0: 30 s, or what a timeout of the plugin's own requests asks for. 1 s to 1 h.
	CallTimeout time.Duration
}

// Model is a named model.
type Model struct {
	Name    string
	Plugin  string // "": Plugins.Default
	Path    string // its folder; "": looked for by name
	SHA256  string // of its weights, 64 hexadecimal digits; "": not checked
	Threads int    // 0: Config.Threads
	// Price is that of a million tokens, in whatever currency. 0: not known.
	Price float64
	// Settings are for the plugin.
	Settings ModelSettings
}

// Workers embed.
type Workers struct {
	// Count is how many batches each pipeline works on at a time. Default 0 (auto): 3, so that others are read and
	// written while one is embedded.
	Count int
	// BatchRows is how many rows a worker takes at once, 1 to 10,000. Default 256.
	BatchRows int
	// Direct has changes worked straight from the stream, without a task in the queue, while that is quick. Default true.
	Direct bool
	// CacheBytes is how much memory may hold vectors of each model, by the hash of their text, to use them again.
	// Default 16 MiB.
	CacheBytes int64
	// DrainTimeout is for how long a worker may finish what it has when it is told to stop; after that it gives it back.
	// 0: it gives everything back at once. Default 20s.
	DrainTimeout time.Duration
}

// Retry says how often and when a failed task is tried again. Only errors of the data use up attempts.
type Retry struct {
	MaxAttempts int           // then the task is a dead letter. Default 8
	Initial     time.Duration // pause after the first failure; doubles each time, with jitter. Default 1s
	Max         time.Duration // the longest pause. Default 5m
	// FailedOnStart has dead letters tried again when the sidecar starts. Default false.
	FailedOnStart bool
}

// Ops is the listener for probes and metrics. It changes nothing.
type Ops struct {
	// Listen is host:port; ":7471" listens on every address. Default "": no listener.
	Listen string
}

// Queries is the listener that embeds and searches for whoever may ask. It changes nothing.
type Queries struct {
	// Listen is host:port. Default "": no listener (serve: 127.0.0.1:7470).
	Listen string
	// TokensFile tells who may ask. Default "": nobody, unless NoAuth.
	TokensFile string
	// NoAuth answers whoever asks, on a loopback address only. Default false.
	NoAuth bool
	// Cert and Key are files for HTTPS. Default "": plain HTTP.
	Cert, Key string
	// SearchTimeout is how long the database may take over a search. Default 10 s.
	SearchTimeout time.Duration
}

// Admin is the listener for administrators. Who may come in is in Queries.TokensFile.
type Admin struct {
	// Listen is host:port. Default "": no listener.
	Listen string
	// Cert and Key are files for HTTPS. Default "": plain HTTP.
	Cert, Key string
	// ClientCA is a file of certificates, one of which must have signed that of a client. Default "": clients need none.
	ClientCA string
	// ReadOnly lets nobody change anything over this listener. Default false.
	ReadOnly bool
	// ShowRowText shows texts of rows to operators and admins who ask for them. Default false.
	ShowRowText bool
	// BasePath is where a reverse proxy has put it, as "/tools/embedsidecar". Default "": at the top.
	BasePath string
}

// Search is what those may see who search a pipeline over HTTP.
type Search struct {
	// Filterable are columns that a filter may be about, beside those of the key, the text and the pipeline's own filter.
	Filterable []string
	// PastRowSecurity (row_security: ignore) searches a table with row level security though its policies do not hold
	// for the role that searches; otherwise (row_security: respect, the default) that is refused.
	PastRowSecurity bool
}

// SearchOf returns what the file says of searching a pipeline.
func (c *Config) SearchOf(name string) Search {
	for i := range c.searches {
		if c.Pipelines[i].Name == name {
			return c.searches[i]
		}
	}
	return Search{}
}

// Log says what is logged, to standard error.
type Log struct {
	Level  slog.Level // Default info
	Format string     // "text", "json" or "auto": text on a terminal, JSON otherwise. Default "auto"
	Output string     // "stderr" or "stdout", of the commands that run until they are stopped. Default "stderr"
}

// Default returns the configuration of somebody who has set nothing.
func Default() *Config {
	return &Config{
		Enabled:     true,
		Database:    Database{ConnectTimeout: time.Minute},
		Slot:        Slot{Name: "embedsidecar"},
		Publication: Publication{Name: "embedsidecar"},
		Plugins:     Plugins{Default: manifest.Default().Name},
		Libraries:   map[string]string{},
		Hub:         "https://huggingface.co",
		Workers: Workers{
			BatchRows: pipeline.DefaultBatchRows, Direct: true,
			CacheBytes:   pipeline.DefaultCacheBytes,
			DrainTimeout: pipeline.DefaultDrainTimeout,
		},
		Queries: Queries{SearchTimeout: 10 * time.Second},
		Lease:   pipeline.DefaultLease,
		Retry: Retry{
			MaxAttempts: pipeline.DefaultMaxAttempts, Initial: pipeline.DefaultFirstRetry,
			Max: pipeline.DefaultLongestRetry,
		},
		Log:     Log{Level: slog.LevelInfo, Format: "auto", Output: "stderr"},
		origins: map[string]string{},
		env:     &environ{},
	}
}

// Origin tells where a setting was made: "--slot", "EMBEDSIDECAR_SLOT", "embedsidecar.yaml:3:9" or "default".
func (c *Config) Origin(path string) string {
	if origin, ok := c.origins[path]; ok {
		return origin
	}
	return "default"
}

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
	return NewRedactor(c.Database.URL, c.Database.StreamURL).with(c.keys()...)
}

// ApplicationName is how the sessions of this sidecar show in pg_stat_activity.
func (c *Config) ApplicationName() string {
	const limit = 63 // Postgres cuts longer ones
	name := "embedsidecar/" + c.Instance
	if len(name) > limit {
		name = name[:limit]
	}
	return name
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
