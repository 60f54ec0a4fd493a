// Package check checks everything that running depends on, and changes nothing.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// Status is the outcome of a check.
type Status string

// The outcomes, best first.
const (
	OK    Status = "ok"
	Warn  Status = "warn"  // works, but the user should know
	Wrong Status = "error" // does not work
)

// Finding is the outcome of one check.
type Finding struct {
	Name   string   `json:"check"` // what was checked: wal_level, slot, pipeline "docs"
	Status Status   `json:"status" enum:"ok,warn,error"`
	Detail string   `json:"detail"`
	Hint   []string `json:"hints,omitempty"` // each a sentence, or a statement to run
	Err    error    `json:"-"`               // the underlying error, if there is one
}

// Options configure the checks.
type Options struct {
	Pool           *pgxpool.Pool
	ReplicationDSN string
	Slot           string
	Publication    string
	CatalogOnly    bool            // for Ready: the schema embedsidecar is not safe to use
	Specs          []pipeline.Spec // configured pipelines; installed ones are checked as well
	// Loaded are the slot's current pipelines, and Stored their rows; without them, Run loads both.
	Loaded []pipeline.Pipeline
	Stored []resolve.Stored
	// Descriptions are those of the embedders, by pipeline name; without one, the width of a pipeline is not checked.
	Descriptions map[string]embed.Description
}

// Run checks everything that running depends on, as the role of the pool, and changes nothing. It always returns
// findings; a failed query is one, too.
func Run(ctx context.Context, o Options) []Finding {
	c := &checker{o: o, readers: map[string][]string{}, tables: map[tableKey]table{}, indexes: map[int32][]indexes.Index{}}
	c.checkServer(ctx)
	c.checkReplication(ctx)
	c.checkSchema(ctx)
	c.checkCreate()
	before := c.findings
	if err := database.RetryReadOnly(ctx, o.Pool, func(tx pgx.Tx) error {
		c.findings = before
		return c.checkSlot(ctx, tx)
	}); err != nil {
		c.failed("slot", err)
	}
	c.checkPipelines(ctx)
	c.tellReaders()
	c.nameHolders(ctx)
	return c.findings
}

// Ready checks what the setup of pipelines depends on: the server, and the role of the pool. It changes nothing. A
// missing extension is no problem if the role may create it.
func Ready(ctx context.Context, o Options) []Finding {
	c := &checker{o: o, before: true}
	c.checkServer(ctx)
	c.checkReplication(ctx)
	if o.CatalogOnly {
		return c.findings
	}
	err := catalog.CheckVersion(ctx, o.Pool)
	missing, is := errors.AsType[*refusal.NotSetUpError](err)
	c.installed = err == nil || is && missing.Of != ""
	c.checkCreate()
	return c.findings
}

// checkCreate reports a role that lacks the right to create missing objects; init creates the schema and the
// publication.
func (c *checker) checkCreate() {
	if c.installed || c.hidden || c.server.Database == "" || c.server.MayCreate {
		return
	}
	grant := "GRANT CREATE ON DATABASE " + database.Quote(c.server.Database) + " TO " + database.Quote(c.server.Role) + ";"
	c.findings = append(c.findings, Finding{
		"role", Wrong, fmt.Sprintf("%q may not create in the database", c.server.Role),
		[]string{grant},
		&refusal.PermissionError{What: "set up", Role: c.server.Role, SQL: []string{grant}},
	})
}

type checker struct {
	o         Options
	before    bool // before the setup: missing objects are no error
	server    catalog.Server
	system    pglogrepl.IdentifySystemResult // zero if unavailable
	installed bool
	stored    []resolve.Stored   // the pipelines of the slot
	known     *catalog.Known     // tables of the configured pipelines
	tables    map[tableKey]table // tables of the installed pipelines
	indexes   map[int32][]indexes.Index
	slot      report.Slot
	stands    []report.Pipeline   // their states
	copied    bool                // the data came from another server, and its state here describes that one
	hidden    bool                // the role may not use the schema
	streamer  string              // the role that streams
	readers   map[string][]string // tables that a role can read only through the slot, by role
	findings  []Finding
}

func (c *checker) add(name string, status Status, detail string, hint ...string) {
	c.findings = append(c.findings, Finding{Name: name, Status: status, Detail: detail, Hint: hint})
}

// failed adds an error as a finding, or joined errors as one finding each.
func (c *checker) failed(name string, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			c.failed(name, err)
		}
		return
	}
	detail := strings.TrimPrefix(database.Words(err), name+": ") // the name says it already
	c.findings = append(c.findings, Finding{name, Wrong, detail, problem.Hints(err), err})
}

// nameHolders names the sessions that hold the locks on which a check failed.
func (c *checker) nameHolders(ctx context.Context) {
	for i := range c.findings {
		if f := &c.findings[i]; database.LockedOut(f.Err) {
			f.Hint = problem.Hints(database.NameHolders(ctx, c.o.Pool, f.Err))
		}
	}
}

func (c *checker) checkViews(s *catalog.Server) {
	if !s.TablesOnly {
		c.add("views in the place of tables", Warn,
			"this minor release of PostgreSQL has no setting to reject them: the owner of a source table could run functions with the rights of this role",
			"update to the last minor release of the server (14.13, 15.8, 16.4 or newer)")
	}
}

func (c *checker) checkServer(ctx context.Context) {
	const name = "server"
	s, err := catalog.ReadServer(ctx, c.o.Pool, c.o.Slot)
	if err != nil {
		c.failed(name, err)
		return
	}
	c.server = s
	switch unfit := cmp.Or(s.TooOld(), s.OnStandby()); {
	case unfit != nil:
		c.failed(name, unfit)
	case s.Untested() != "":
		c.add(name, Warn, s.Untested())
	default:
		c.add(name, OK, fmt.Sprintf("PostgreSQL %d", s.Major()))
	}
	if err := s.NotLogical(); err != nil {
		c.failed("wal_level", err)
	} else {
		c.add("wal_level", OK, s.WALLevel)
	}
	c.checkLimits(&s)
	c.checkExtension(&s)
	if database.Pooled(c.o.Pool) {
		c.add("connection pooler", Warn, "queries go through a pooler",
			"this works, but init and the stream need a direct connection: --stream-url")
	}
	c.checkViews(&s)
	c.checkMessages(&s)
	switch {
	case s.Superuser:
		c.add("role", Warn, fmt.Sprintf("%q is a superuser: running does not need that", s.Role),
			"embedsidecar roles prints roles with only the needed privileges")
	default:
		c.add("role", OK, fmt.Sprintf("%q", s.Role))
	}
}

// Extension is the name of the check of pgvector.
const Extension = "extension vector"

// checkExtension reports whether pgvector is installed, or can be.
func (c *checker) checkExtension(s *catalog.Server) {
	const name = Extension
	sql, _ := s.CreateVector()
	switch {
	case s.Vector != "":
		c.checkVector(s.Vector)
	case !pipeline.NeedPgvector(c.o.Specs):
		c.add(name, OK, "no pipeline needs it")
	case s.VectorAvailable != "" && c.before && s.VectorMay && c.vulnerable(s.VectorAvailable):
	case s.VectorAvailable != "" && c.before && s.VectorMay:
		c.add(name, OK, s.VectorAvailable+" is on the server, and the set-up installs it in this database")
	case s.VectorAvailable != "":
		c.failed(name, refusal.Coded(code.Pgvector, "not installed; the server has "+s.VectorAvailable,
			"run as a superuser, or as the administrator of a managed server: "+strings.Join(sql, " ")))
	default:
		c.failed(name, refusal.Coded(code.Pgvector, "the server does not have pgvector",
			fmt.Sprintf("install the server's package pgvector, such as postgresql-%d-pgvector", s.Major()),
			"then, as a superuser, or as the administrator of a managed server: "+strings.Join(sql, " ")))
	}
}

// checkMessages reports which roles may write logical messages to the WAL, which the stream has to skip.
func (c *checker) checkMessages(s *catalog.Server) {
	const name = "logical messages"
	if slices.Contains(s.Emitters, "") {
		c.add(name, OK, "every role that logs in may write them: docs/security.md explains how to change that")
		return
	}
	c.add(name, OK, strings.Join(s.Emitters, ", ")+" may write them")
}

// taken is the error for a server limit that is reached.
func taken(most int, hint ...string) error {
	return &refusal.ConflictError{Code: code.NoSlotFree, Problem: fmt.Sprintf("all %d are in use", most), Hint: hint}
}

// more returns a suggested new limit.
func more(limit int) int { return max(10, 2*limit) } // as the server has by itself

// checkLimits checks the server's limits for slots, senders and WAL.
func (c *checker) checkLimits(s *catalog.Server) {
	if !s.Exists && s.Slots >= s.MaxSlots {
		c.failed("max_replication_slots", taken(s.MaxSlots, "raise it and restart the server: ALTER SYSTEM SET "+
			fmt.Sprintf("max_replication_slots = %d;", more(s.MaxSlots)),
			"or drop an unused one: SELECT slot_name, active FROM pg_replication_slots;"))
	} else {
		c.add("max_replication_slots", OK, fmt.Sprintf("%d of %d in use", s.Slots, s.MaxSlots))
	}
	if !s.Streamed && s.Senders >= s.MaxSenders {
		c.failed("max_wal_senders", taken(s.MaxSenders, "raise it and restart the server: ALTER SYSTEM SET "+
			fmt.Sprintf("max_wal_senders = %d;", more(s.MaxSenders))))
	} else {
		c.add("max_wal_senders", OK, fmt.Sprintf("%d of %d in use", s.Senders, s.MaxSenders))
	}
	const small = 1024
	switch {
	case s.KeepMB < 0:
		c.add("max_slot_wal_keep_size", Warn, "no limit: an unread slot can fill the disk",
			"ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf(); (as much as the disk has to spare)")
	case s.KeepMB < small:
		c.add("max_slot_wal_keep_size", Warn,
			s.Keep+": a short pause of the sidecar can cost the slot, and then every row is compared",
			"ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();")
	default:
		c.add("max_slot_wal_keep_size", OK, s.Keep)
	}
}

// checkReplication opens the connection that the stream will use, and checks that it leads to the same server.
func (c *checker) checkReplication(ctx context.Context) {
	const name = "replication connection"
	conn, err := database.ConnectReplication(ctx, c.o.ReplicationDSN,
		database.Options{ApplicationName: "embedsidecar check"})
	if database.Denied(err) {
		c.findings = append(c.findings, Finding{name, Wrong, "its role lacks REPLICATION", problem.Hints(err), err})
		return
	}
	if err != nil {
		c.failed(name, err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := catalog.SameServer(ctx, c.o.Pool, conn); err != nil {
		c.failed(name, err)
		return
	}
	system, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		c.failed(name, err)
		return
	}
	if cfg, err := pgconn.ParseConfig(c.o.ReplicationDSN); err == nil {
		c.streamer = cfg.User
	}
	c.add(name, OK, "the role may replicate, no pooler is in between")
	c.system = system
}

func (c *checker) checkSchema(ctx context.Context) {
	const name = "schema embedsidecar"
	if err := catalog.CheckVersion(ctx, c.o.Pool); err != nil {
		c.failed(name, err)
		var missing *refusal.NotSetUpError
		var denied *refusal.PermissionError
		c.installed = errors.As(err, &missing) && missing.Err != nil
		c.hidden = errors.As(err, &denied)
		return
	}
	c.installed = true
	var enabled bool
	if err := c.o.Pool.QueryRow(ctx, "SELECT enabled FROM embedsidecar.installation").Scan(&enabled); err != nil {
		c.failed(name, err)
		return
	}
	if !enabled {
		c.add(name, Warn, "all pipelines are paused: changes are queued, nothing is embedded",
			"SELECT embedsidecar.resume();")
		return
	}
	c.add(name, OK, "installed, in the version of this program")
}

func (c *checker) checkSlot(ctx context.Context, tx pgx.Tx) error {
	s, err := slot.Find(ctx, tx, c.o.Slot, c.installed)
	if err != nil {
		return err
	}
	if c.copied = c.system.SystemID != "" && s.OtherServer(c.system.SystemID); c.copied {
		c.add("system id", Wrong, fmt.Sprintf("it is %s, it was %s: the data was restored or copied", c.system.SystemID,
			s.SystemID),
			"to use this copy on its own, run embedsidecar init --adopt with its pipelines configured: it creates a new slot and compares every row")
	}
	publication := c.o.Publication
	if s.Recorded { // the slot was set up with this publication, and the stream uses it
		publication = s.Publication
	}
	pub, err := publish.Find(ctx, tx, publication)
	if err != nil {
		return err
	}
	name := "publication"
	if pub == nil {
		c.add(name, Wrong, fmt.Sprintf("%q does not exist", publication), "run embedsidecar init as the owner of the tables")
	} else if unfit := pub.Unfit(publication); unfit != nil {
		c.add(name, Wrong, unfit.Problem, unfit.Hint...)
	} else {
		c.add(name, OK, fmt.Sprintf("%q, tables: %d", publication, len(pub.Entries)))
	}
	if c.unfit(&s) || !s.Recorded {
		return nil
	}
	all, err := report.Slots(ctx, tx)
	for i := range all {
		if all[i].Name == c.o.Slot {
			c.slot = all[i]
			c.tellSlot()
		}
	}
	return err
}

// unfit reports why a stream could not start from the slot, or not continue at its checkpoint.
func (c *checker) unfit(s *slot.State) bool {
	const name = "slot"
	server := c.system
	if server.SystemID == "" { // the replication connection failed, which is another finding
		server = pglogrepl.IdentifySystemResult{SystemID: s.ServerID, Timeline: s.Timeline}
	}
	v := s.Judge(server)
	switch v.Condition {
	case slot.Elsewhere:
		if s.Recorded {
			return false
		}
		c.failed(name, v.Err())
	case slot.OtherPlugin, slot.Awaited:
		c.failed(name, v.Err())
	case slot.Unrecorded:
		if c.hidden {
			return false
		}
		c.add(name, Wrong, fmt.Sprintf("%q is not ours", c.o.Slot), "choose another name with --slot")
	case slot.Absent, slot.Altered, slot.Republished, slot.Temporary, slot.Interrupted:
		if v.Condition == slot.Interrupted && !s.Exists { // it is not created yet, which the state says
			return false
		}
		c.add(name, Wrong, v.Reason, v.Hint...)
	case slot.Moved, slot.Ahead, slot.OtherTimeline: // a running streamer may have just stored a new position
		if s.Active {
			return false
		}
		c.add(name, Wrong, v.Reason, v.Hint...)
	default:
		return false
	}
	return true
}

// tellSlot reports the state of the slot. A copied installation is also reported by its system id.
func (c *checker) tellSlot() {
	s := &c.slot
	detail := s.Word() + ": " + s.Reason
	if s.State == report.Streamed {
		detail = s.Reason
	}
	c.add("slot", Status(s.Status), fmt.Sprintf("%s; it keeps %d MB of WAL", detail, s.RetainedBytes>>20), s.Hints...)
}

// checkIndexes reports which indexes searches use.
func (c *checker) checkIndexes(ctx context.Context, p *pipeline.Pipeline) {
	name := fmt.Sprintf("index of %q", p.Name)
	found, looked := c.indexes[p.ID]
	if !looked { // reading them together failed
		var err error
		if found, err = indexes.Of(ctx, c.o.Pool, p); err != nil {
			c.failed(name, err)
			return
		}
	}
	for _, i := range found {
		switch i.State {
		case indexes.Ready:
			c.add(name, OK, fmt.Sprintf("%s over %s (%s, %s)", i.Name, i.Table, i.Method, i.OperatorClass))
		case indexes.None:
			status, detail := OK, fmt.Sprintf("none over %s: each search reads every vector", i.Table)
			if i.Rows != nil {
				detail += fmt.Sprintf(", about %d", *i.Rows)
			}
			if i.Detail != "" {
				detail += "; " + i.Detail
			}
			var hint []string
			if i.Large() {
				status, hint = Warn, append([]string{"when the backfill is done, as the owner of the table (with index: hnsw the sidecar builds it):"}, i.SQL...)
			}
			c.add(name, status, detail, hint...)
		case indexes.Building:
			c.add(name, OK, fmt.Sprintf("%s over %s is being built%s", i.Name, i.Table, i.Progress()))
		case indexes.Invalid:
			c.add(name, Warn, fmt.Sprintf("%s over %s: %s", i.Name, i.Table, i.Detail),
				append([]string{"as the owner of the table (with index: hnsw the sidecar does it, if the index has its default name):"}, i.SQL...)...)
		case indexes.Other:
			c.add(name, OK, fmt.Sprintf("%s over %s: %s", i.Name, i.Table, i.Detail))
		}
	}
}

// tableKey is a source table and its vector column, or "".
type tableKey struct {
	OID    uint32
	Column string
}

// table is what users of a source table may notice.
type table struct {
	tableKey

	Identity string
	Triggers []string
	Readers  []string
}

// readTables reads the tables of pipelines together: a thousand take as many statements as one.
func (c *checker) readTables(ctx context.Context, list ...*pipeline.Pipeline) error {
	oids, columns := make([]uint32, len(list)), make([]string, len(list))
	for i, p := range list {
		oids[i], columns[i] = p.OID, p.IntoColumn
	}
	return database.RetryReadOnly(ctx, c.o.Pool, func(tx pgx.Tx) error {
		found, err := database.Collect(ctx, tx, "check_tables", pgx.RowToStructByName[table], pgx.StrictNamedArgs{
			"tables": oids, "columns": columns, "streamer": c.streamer,
		})
		if err != nil {
			return fmt.Errorf("look at tables: %w", err)
		}
		for _, t := range found {
			c.tables[t.tableKey] = t
		}
		return nil
	})
}

// checkTable reports what users of the source table may notice.
func (c *checker) checkTable(ctx context.Context, name string, p *pipeline.Pipeline) {
	key := tableKey{p.OID, p.IntoColumn}
	if _, read := c.tables[key]; !read {
		if err := c.readTables(ctx, p); err != nil {
			c.failed(name, err)
			return
		}
	}
	t := c.tables[key]
	if p.InSource() {
		c.add(name, Warn, "a write-back updates rows of the source table: REPEATABLE READ and SERIALIZABLE writers, and optimistic locking by xmin, can conflict with it; "+
			"while it holds rows (at most 64), FOR UPDATE NOWAIT on one of them fails and SKIP LOCKED skips it",
			"writers in READ COMMITTED wait for at most one short write-back; an embedding table (into: {table: ...}) never touches the row")
		if len(t.Triggers) > 0 {
			c.add(name, Warn, "these triggers fire on a write-back: "+strings.Join(t.Triggers, ", "),
				"limit them to columns (UPDATE OF ...), or use an embedding table")
		}
	}
	if t.Identity == "f" {
		c.add(name, Warn, "REPLICA IDENTITY FULL writes every old row to the WAL", "ALTER TABLE "+p.Source()+
			" REPLICA IDENTITY DEFAULT; unless another program needs it")
	}
	if p.Chunked {
		c.checkTexts(ctx, name, p)
	}
	for _, reader := range t.Readers {
		c.readers[reader] = lists.Add(c.readers[reader], p.Source())
	}
}

// checkTexts warns of roles that can read the texts of chunks although policies or grants hide rows of the source.
func (c *checker) checkTexts(ctx context.Context, name string, p *pipeline.Pipeline) {
	found, err := database.Collect(ctx, c.o.Pool, "texts_past_policies", pgx.RowTo[string],
		pgx.StrictNamedArgs{"into": p.Into(), "tables": p.Tables()})
	switch {
	case err != nil:
		c.failed(name, err)
	case len(found) > 0:
		c.add(name, Warn, "these roles can read the texts of chunks of all rows, although policies or grants hide rows of the source from "+
			"them: "+strings.Join(found, ", "),
			"give "+p.Into()+" policies of its own, revoke SELECT on it from them, or store no texts (chunking: {store_text: false})")
	}
}

// tellReaders warns once of roles, other than the streaming one, that can read published data of tables that they may
// not read.
func (c *checker) tellReaders() {
	told := lists.Map(slices.Sorted(maps.Keys(c.readers)), func(role string) string {
		return fmt.Sprintf("%s (%s)", role, strings.Join(c.readers[role], ", "))
	})
	if len(told) > 0 {
		c.add("roles that may replicate", Warn,
			"these roles may not read all of these tables, but can replicate what is published of them: "+
				strings.Join(told, "; "),
			"publish fewer columns (column_lists: true), or revoke REPLICATION from roles that do not need it")
	}
}
