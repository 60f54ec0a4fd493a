package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Setting is one thing that a user may set by flag, environment variable or file. Settings lists them all; help texts,
// the reader of the file and the merge are made from that list, so they cannot disagree.
type Setting struct {
	Path        string // in the file, "workers.count"; "" when the file has another place for it
	Flag        string // without dashes, "workers"
	Group       string // heading in help texts
	Placeholder string // what the flag's value is, "N"; "" for a switch
	Usage       string
	Secret      bool // the value may hold a password

	set func(c *Config, value string) error
	get func(c *Config) string
}

// Env is the environment variable of the setting.
func (s Setting) Env() string { return EnvName(s.Flag) }

// Default is the value without any setting, as a user would write it.
func (s Setting) Default() string { return s.get(Default()) }

// Value is the setting's value in a configuration, as a user would write it, without passwords.
func (s Setting) Value(c *Config) string {
	if s.Secret {
		return RedactDSN(s.get(c))
	}
	return s.get(c)
}

// EnvName returns the environment variable that stands for a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const (
	envPrefix       = "EMBEDSIDECAR_"
	pluginEnvPrefix = "EMBEDSIDECAR_PLUGIN_"
)

// The groups of settings.
const (
	GroupDatabase  = "Database"
	GroupPipeline  = "Pipelines"
	GroupEmbedding = "Embedding"
	GroupWork      = "Work"
	GroupOps       = "Operations"
	GroupQueries   = "Queries"
	GroupAdmin     = "Administration"
)

// Bounds of settings, used by the parsers and in messages.
const (
	maxWorkers     = 1024
	maxBatchRows   = 10000
	maxCacheBytes  = 1 << 40
	minCacheBytes  = 1 << 10
	maxThreads     = embed.MaxThreads
	maxProcesses   = embed.MaxProcesses
	minMemory      = 16 << 20
	minCallTimeout = time.Second
	maxCallTimeout = time.Hour
	maxMemory      = 1 << 44
	maxAttempts    = 1000
	maxPrice       = 1e6 // of a million tokens
	longestTimeout = 24 * time.Hour
)

// Settings returns every setting, in the order of help texts.
func Settings() []Setting {
	list := settings()
	before := slices.IndexFunc(list, func(s Setting) bool { return s.Flag == "threads" })
	return slices.Insert(list, before, librarySettings()...)
}

// librarySettings say where the libraries are that plugins load.
func librarySettings() []Setting {
	var list []Setting
	for _, of := range manifest.All() {
		if of.Library == nil {
			continue
		}
		name := of.Library.Setting
		list = append(list, Setting{
			Path: name, Flag: name, Group: GroupEmbedding, Placeholder: "FILE",
			Usage: of.Library.Is + " for the plugin " + of.Name,
			set: func(c *Config, v string) error {
				err := withoutNUL(v)
				if err == nil {
					c.Libraries[name] = v
				}
				return err
			},
			get: func(c *Config) string { return c.Libraries[name] },
		})
	}
	return list
}

func settings() []Setting {
	return slices.Concat(databaseSettings(), embeddingSettings(), workSettings(), listenSettings(), logSettings())
}

func databaseSettings() []Setting {
	return []Setting{
		text("database.url", "database-url", GroupDatabase, "URL",
			"connection string, postgres://user@host/database or host=... dbname=...; the PG* variables fill in the rest",
			func(c *Config) *string { return &c.Database.URL }).secret(),
		text("database.url_file", "database-url-file", GroupDatabase, "FILE", "file that holds the connection string",
			func(c *Config) *string { return &c.Database.urlFile }),
		text("database.stream_url", "stream-url", GroupDatabase, "URL",
			"connection string for replication, when the other leads through a pooler or another role streams",
			func(c *Config) *string { return &c.Database.StreamURL }).secret(),
		text("database.stream_url_file", "stream-url-file", GroupDatabase, "FILE",
			"file that holds the connection string for replication",
			func(c *Config) *string { return &c.Database.streamURLFile }),
		duration("database.connect_timeout", "connect-timeout",
			"for how long run waits for a server that cannot be reached when it starts", 0, longestTimeout,
			func(c *Config) *time.Duration { return &c.Database.ConnectTimeout }).in(GroupDatabase),
		text("database.trust_owner", "trust-owner", GroupDatabase, "ROLE",
			"roles, with commas between, whose tables and functions may be used with all that the connecting role may do",
			func(c *Config) *string { return &c.Database.TrustOwner }),
		checked("slot.name", "slot", GroupDatabase, "NAME", "replication slot", checkSlot,
			func(c *Config) *string { return &c.Slot.Name }),
		{
			Path: "slot.on_lost", Flag: "on-lost", Group: GroupDatabase, Placeholder: "reconcile|stop",
			Usage: "what to do when the slot has a gap: make a new one and compare every row, or stop",
			set: func(c *Config, v string) error {
				choice, err := oneOf(v, "reconcile", "stop")
				c.Slot.StopOnLost = choice == "stop"
				return err
			},
			get: func(c *Config) string {
				if c.Slot.StopOnLost {
					return "stop"
				}
				return "reconcile"
			},
		},
		{
			Path: "slot.failover", Flag: "slot-failover", Group: GroupDatabase, Placeholder: "auto|off",
			Usage: "make a slot that standbys may keep a copy of, from PostgreSQL 17 on",
			set: func(c *Config, v string) error {
				choice, err := oneOf(v, "auto", "off")
				c.Slot.NoFailover = choice == "off"
				return err
			},
			get: func(c *Config) string {
				if c.Slot.NoFailover {
					return "off"
				}
				return "auto"
			},
		},
		checked("publication.name", "publication", GroupDatabase, "NAME", "publication", checkName,
			func(c *Config) *string { return &c.Publication.Name }),
		toggle("publication.column_lists", "column-lists", GroupDatabase,
			"publish only the columns that are read (PostgreSQL 15 and later; can make a user's own UPDATE or ALTER fail)",
			func(c *Config) *bool { return &c.Publication.ColumnLists }),
	}
}

func embeddingSettings() []Setting {
	return []Setting{
		text("default_model", "model", GroupEmbedding, "NAME|FOLDER", "model of pipelines that name none",
			func(c *Config) *string { return &c.DefaultModel }),
		sum("", "model-sha256", "SHA256 of the weights of --model", func(c *Config) *string { return &c.ModelSHA256 }),
		text("model_dir", "model-dir", GroupEmbedding, "FOLDER", "where models are looked for by name",
			func(c *Config) *string { return &c.ModelDir }),
		text("plugins.default", "plugin", GroupEmbedding, "NAME|FILE", "plugin of pipelines and models that name none",
			func(c *Config) *string { return &c.Plugins.Default }),
		sum("", "plugin-sha256", "SHA256 of the program of --plugin", func(c *Config) *string { return &c.Plugins.SHA256 }),
		text("plugins.dir", "plugin-dir", GroupEmbedding, "FOLDER", "where plugins are looked for by name",
			func(c *Config) *string { return &c.Plugins.Dir }),
		text("plugins.catalog_file", "plugin-catalog", GroupEmbedding, "FILE",
			"file of registered plugins (default: catalog.yaml in the folder of plugins)",
			func(c *Config) *string { return &c.Plugins.CatalogFile }),
		text("hub", "hub", GroupEmbedding, "URL", "where models pull fetches from",
			func(c *Config) *string { return &c.Hub }),
		auto("threads", "threads", GroupEmbedding, "threads an embedder may use", maxThreads,
			func(c *Config) *int { return &c.Threads }),
	}
}

func workSettings() []Setting {
	return []Setting{
		toggle("enabled", "enabled", GroupWork, "master switch: when false, changes are queued and nothing is embedded",
			func(c *Config) *bool { return &c.Enabled }),
		checked("instance", "instance", GroupWork, "NAME",
			"name of this sidecar among others (default: the host's name and the process's number)", checkInstance,
			func(c *Config) *string { return &c.Instance }),
		auto("workers.count", "workers", GroupWork, "batches that each pipeline works on at a time", maxWorkers,
			func(c *Config) *int { return &c.Workers.Count }),
		number("workers.batch_rows", "batch-rows", GroupWork, "rows a worker takes at once", 1, maxBatchRows,
			func(c *Config) *int { return &c.Workers.BatchRows }),
		toggle("workers.direct", "direct", GroupWork,
			"work a change straight from the stream when that is quick; when false, each goes through the queue",
			func(c *Config) *bool { return &c.Workers.Direct }),
		{
			Path: "workers.cache_bytes", Flag: "cache-bytes", Group: GroupWork, Placeholder: "SIZE",
			Usage: "memory for vectors of each model that may be needed again",
			set: func(c *Config, v string) (err error) {
				size, err := parseSize(v, minCacheBytes, maxCacheBytes)
				if err == nil {
					c.Workers.CacheBytes = size
				}
				return err
			},
			get: func(c *Config) string { return formatSize(c.Workers.CacheBytes) },
		},
		duration("workers.drain_timeout", "drain-timeout", "for how long work may be finished after a request to stop", 0,
			longestTimeout,
			func(c *Config) *time.Duration { return &c.Workers.DrainTimeout }),
		duration("lease", "lease", "for how long a worker may keep a task without a sign of life", time.Second, time.Hour,
			func(c *Config) *time.Duration { return &c.Lease }),
		number("retry.max_attempts", "max-attempts", GroupWork, "failures of one row after which it is a dead letter", 1,
			maxAttempts,
			func(c *Config) *int { return &c.Retry.MaxAttempts }),
		duration("retry.initial", "retry-initial", "pause after the first failure", time.Millisecond, longestTimeout,
			func(c *Config) *time.Duration { return &c.Retry.Initial }),
		duration("retry.max", "retry-max", "longest pause between two tries", time.Millisecond, longestTimeout,
			func(c *Config) *time.Duration { return &c.Retry.Max }),
		toggle("retry.failed_on_start", "retry-failed-on-start", GroupWork, "try dead letters again when the sidecar starts",
			func(c *Config) *bool { return &c.Retry.FailedOnStart }),
	}
}

func listenSettings() []Setting {
	return []Setting{
		checked("http.ops.listen", "ops-listen", GroupOps, "HOST:PORT",
			"address of /livez, /readyz, /metrics and /version (default: none)", checkListen,
			func(c *Config) *string { return &c.Ops.Listen }),
		text("control.dir", "control-dir", GroupOps, "FOLDER",
			"folder of the sockets through which plugins reload and cache stats reach running sidecars (default: embedsidecar in XDG_RUNTIME_DIR, else in the temporary folder)",
			func(c *Config) *string { return &c.ControlDir }),

		checked("http.queries.listen", "http", GroupQueries, "HOST:PORT",
			"address that answers queries: embeddings in the form of OpenAI's API, and searches", checkListen,
			func(c *Config) *string { return &c.Queries.Listen }),
		text("auth.tokens_file", "tokens-file", GroupQueries, "FILE",
			"who may query or administer: a line NAME:ROLE:SHA256 of the token for each; read again when it changes",
			func(c *Config) *string { return &c.Queries.TokensFile }),
		toggle("http.queries.no_auth", "no-auth", GroupQueries, "answer whoever asks; on a loopback address only",
			func(c *Config) *bool { return &c.Queries.NoAuth }),
		text("http.queries.cert", "http-cert", GroupQueries, "FILE",
			"certificate for HTTPS, in PEM; read again when it changes",
			func(c *Config) *string { return &c.Queries.Cert }),
		text("http.queries.key", "http-key", GroupQueries, "FILE", "key of the certificate, in PEM",
			func(c *Config) *string { return &c.Queries.Key }),
		duration("http.queries.search_timeout", "search-timeout", "for how long the database may work on a search over HTTP",
			100*time.Millisecond, time.Minute,
			func(c *Config) *time.Duration { return &c.Queries.SearchTimeout }).in(GroupQueries),

		checked("http.admin.listen", "admin-listen", GroupAdmin, "HOST:PORT",
			"address of the administration: an API to look and act by; whoever asks needs a token of auth.tokens_file",
			checkListen, func(c *Config) *string { return &c.Admin.Listen }),
		text("http.admin.cert", "admin-cert", GroupAdmin, "FILE",
			"certificate of the administration for HTTPS, in PEM; read again when it changes",
			func(c *Config) *string { return &c.Admin.Cert }),
		text("http.admin.key", "admin-key", GroupAdmin, "FILE", "key of that certificate, in PEM",
			func(c *Config) *string { return &c.Admin.Key }),
		text("http.admin.client_ca", "admin-client-ca", GroupAdmin, "FILE",
			"certificates, in PEM, one of which must have signed that of a client, who needs a token all the same",
			func(c *Config) *string { return &c.Admin.ClientCA }),
		toggle("http.admin.read_only", "admin-read-only", GroupAdmin, "change nothing over the administration's listener",
			func(c *Config) *bool { return &c.Admin.ReadOnly }),
		toggle("http.admin.show_row_text", "admin-row-text", GroupAdmin,
			"show texts of rows to operators and admins who ask for them",
			func(c *Config) *bool { return &c.Admin.ShowRowText }),
		{
			Path: "http.admin.base_path", Flag: "admin-base-path", Group: GroupAdmin, Placeholder: "/PATH",
			Usage: "path under which a reverse proxy shows the administration, whether it takes that away or leaves it (default: none)",
			set: func(c *Config, v string) error {
				path, err := parseBasePath(v)
				if err == nil {
					c.Admin.BasePath = path
				}
				return err
			},
			get: func(c *Config) string { return c.Admin.BasePath },
		},
	}
}

func logSettings() []Setting {
	return []Setting{
		{
			Path: "log.level", Flag: "log-level", Group: GroupOps, Placeholder: "debug|info|warn|error", Usage: "what is logged",
			set: func(c *Config, v string) error {
				level, err := parseLevel(v)
				if err == nil {
					c.Log.Level = level
				}
				return err
			},
			get: func(c *Config) string { return strings.ToLower(c.Log.Level.String()) },
		},
		{
			Path: "log.format", Flag: "log-format", Group: GroupOps, Placeholder: "auto|text|json",
			Usage: "form of the log; auto is text on a terminal and JSON otherwise",
			set: func(c *Config, v string) error {
				format, err := oneOf(v, "auto", "text", "json")
				if err == nil {
					c.Log.Format = format
				}
				return err
			},
			get: func(c *Config) string { return c.Log.Format },
		},
		{
			Path: "log.output", Flag: "log-output", Group: GroupOps, Placeholder: "stderr|stdout",
			Usage: "where run and serve log to; other commands always log to stderr",
			set: func(c *Config, v string) error {
				output, err := oneOf(v, "stderr", "stdout")
				if err == nil {
					c.Log.Output = output
				}
				return err
			},
			get: func(c *Config) string { return c.Log.Output },
		},
	}
}

func (s Setting) secret() Setting {
	s.Secret = true
	return s
}

func (s Setting) in(group string) Setting {
	s.Group = group
	return s
}

func text(path, flag, group, placeholder, usage string, field func(*Config) *string) Setting {
	return checked(path, flag, group, placeholder, usage, func(string) error { return nil }, field)
}

func withoutNUL(v string) error {
	if strings.ContainsRune(v, 0) {
		return errors.New("a value cannot hold a NUL byte")
	}
	return nil
}

func checked(path, flag, group, placeholder, usage string, check func(string) error,
	field func(*Config) *string,
) Setting {
	return Setting{
		Path: path, Flag: flag, Group: group, Placeholder: placeholder, Usage: usage,
		set: func(c *Config, v string) error {
			if err := cmp.Or(withoutNUL(v), check(v)); err != nil {
				return err
			}
			*field(c) = v
			return nil
		},
		get: func(c *Config) string { return *field(c) },
	}
}

func sum(path, flag, usage string, field func(*Config) *string) Setting {
	return Setting{
		Path: path, Flag: flag, Group: GroupEmbedding, Placeholder: "HEX", Usage: usage,
		set: func(c *Config, v string) error {
			digits, err := parseSHA256(v)
			if err == nil {
				*field(c) = digits
			}
			return err
		},
		get: func(c *Config) string { return *field(c) },
	}
}

func toggle(path, flag, group, usage string, field func(*Config) *bool) Setting {
	return Setting{
		Path: path, Flag: flag, Group: group, Usage: usage,
		set: func(c *Config, v string) error {
			on, err := parseBool(v)
			if err == nil {
				*field(c) = on
			}
			return err
		},
		get: func(c *Config) string { return strconv.FormatBool(*field(c)) },
	}
}

func number(path, flag, group, usage string, low, high int, field func(*Config) *int) Setting {
	return Setting{
		Path: path, Flag: flag, Group: group, Placeholder: "N", Usage: usage,
		set: func(c *Config, v string) error {
			n, err := parseInt(v, low, high)
			if err == nil {
				*field(c) = n
			}
			return err
		},
		get: func(c *Config) string { return strconv.Itoa(*field(c)) },
	}
}

func auto(path, flag, group, usage string, high int, field func(*Config) *int) Setting {
	return Setting{
		Path: path, Flag: flag, Group: group, Placeholder: "N|auto", Usage: usage,
		set: func(c *Config, v string) error {
			n, err := parseAuto(v, high)
			if err == nil {
				*field(c) = n
			}
			return err
		},
		get: func(c *Config) string {
			if n := *field(c); n != 0 {
				return strconv.Itoa(n)
			}
			return "auto"
		},
	}
}

func duration(path, flag, usage string, low, high time.Duration, field func(*Config) *time.Duration) Setting {
	return Setting{
		Path: path, Flag: flag, Group: GroupWork, Placeholder: "DURATION", Usage: usage,
		set: func(c *Config, v string) error {
			d, err := parseDuration(v, low, high)
			if err == nil {
				*field(c) = d
			}
			return err
		},
		get: func(c *Config) string { return formatDuration(*field(c)) },
	}
}

// checkSlot knows Postgres' rule for names of slots.
func checkSlot(name string) error {
	if name == "" || len(name) > maxIdent || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("a slot's name has 1 to %d of a-z, 0-9 and _, not %q", maxIdent, name)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxIdent || invalidAt(name) >= 0 {
		return fmt.Errorf("expected a name of 1 to %d bytes of UTF-8", maxIdent)
	}
	return nil
}

func checkInstance(name string) error {
	if name == "" || len(name) > maxIdent-len("embedsidecar/") {
		return fmt.Errorf("expected a name of 1 to %d characters", maxIdent-len("embedsidecar/"))
	}
	for _, r := range name {
		if r <= ' ' || r > '~' {
			return fmt.Errorf("expected a name of printable ASCII characters without spaces, not %q", name)
		}
	}
	return nil
}

func checkListen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("expected HOST:PORT or :PORT, as in 127.0.0.1:7471, not %q", address)
	}
	if _, err := parseInt(port, 0, 65535); err != nil {
		return fmt.Errorf("port of %q: %w", address, err)
	}
	if strings.ContainsAny(host, " /@") {
		return fmt.Errorf("expected HOST:PORT, as in 127.0.0.1:7471, not %q", address)
	}
	return nil
}
