package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/compare"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// ServiceOptions configure a Service.
type ServiceOptions struct {
	Config   *config.Config
	Redact   func(string) string     // removes secrets from a text
	Snapshot func() observe.Snapshot // state of this process
	Name     string                  // of the database, if there are several
	// Databases lists the databases, if there are several: a Service without a Name belongs to none of them.
	Databases func() []DatabaseState
	// Check checks everything that running depends on.
	Check  func(ctx context.Context, pool *pgxpool.Pool) []check.Finding
	Reload func(ctx context.Context, by string, plugins []string) []control.Reloaded
	// Plan returns what the current configuration file would change; Configure loads it. nil: the configuration cannot
	// change at run time.
	Plan      func(ctx context.Context) (control.Configured, error)
	Configure func(ctx context.Context, action, by string) (control.Configured, error)
	// Embed embeds a text to search for with a pipeline's own model. nil: no search.
	Embed func(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error)
	// Score scores candidates with a pipeline's reranker. nil if Embed is.
	Score func(ctx context.Context, p *pipeline.Pipeline, query string, texts []string) ([]float32, error)
	// PlanModel and CompareModel examine a change of a pipeline's model. nil: there is no model here.
	PlanModel func(ctx context.Context, pool *pgxpool.Pool, name string, to pipeline.ModelName,
	) (generations.Plan, error)
	CompareModel func(ctx context.Context, pool *pgxpool.Pool, name string, questions []compare.Question,
		access *search.Access) (compare.Result, error)
	// Registered and Folders return the plugins and models that are available on this machine. nil: unknown.
	Registered func(ctx context.Context) ([]registry.Known, error)
	Folders    func() []models.Info
	Log        *slog.Logger
}

// Service has the queries and actions of administrators. It takes the caller from the context and checks its rights. It
// is safe for concurrent use.
type Service struct {
	o        ServiceOptions
	cfg      atomic.Pointer[config.Config] // the configuration in force
	look     look
	events   *hub
	judge    gate.Judge
	waits    turn // requests that wait for vectors
	counting turn // one request counts all tasks at a time

	mu   sync.Mutex
	pool *pgxpool.Pool // nil while the program starts

	checking  turn
	checked   []check.Finding // under mu, like the next field
	checkedAt time.Time
}

// NewService makes a Service. It has no database before Follow.
func NewService(o ServiceOptions) *Service {
	s := &Service{
		o: o, judge: gate.Judge{Inside: true, Redact: o.Redact, Log: o.Log}, events: newHub(),
		look:     look{redact: o.Redact, memory: observe.Memory{Counts: report.Counts{Age: statusAge}}},
		checking: make(turn, 1), counting: make(turn, 1), waits: make(turn, maxWaits),
	}
	s.cfg.Store(o.Config)
	return s
}

func (s *Service) config() *config.Config { return s.cfg.Load() }

// Use replaces the configuration.
func (s *Service) Use(c *config.Config) { s.cfg.Store(c) }

// ProblemOf turns an error into what the caller may see of it.
func (s *Service) ProblemOf(ctx context.Context, err error) *gate.Problem {
	return s.judge.Problem(ctx, err)
}

// turn limits concurrency to its capacity. take waits at most until the context ends.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) giveBack() { <-t }

// Follow sets the database.
func (s *Service) Follow(pool *pgxpool.Pool) {
	s.look.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = pool
}

func (s *Service) database() (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.OfNone() {
		return nil, gate.ChooseDatabase(nil)
	}
	if s.pool == nil {
		return nil, gate.Refuse(http.StatusServiceUnavailable, "starting", "the sidecar is starting and is not connected to its database yet").After(2 * time.Second)
	}
	return s.pool, nil
}

// Program is this process.
type Program struct {
	Database string   `json:"database,omitempty" doc:"Its name, if there are several"`
	Instance string   `json:"instance"`
	Slot     string   `json:"slot"`
	Version  string   `json:"version"`
	Pid      int      `json:"pid"`
	Ready    bool     `json:"ready"`
	NotReady []string `json:"not_ready,omitempty" doc:"Failed readiness checks"`
}

// Status is the state of the installation.
type Status struct {
	At       time.Time `json:"at" doc:"Time of this state"`
	ReadOnly bool      `json:"read_only" doc:"Whether this listener rejects all changes"`
	Program  Program   `json:"program" doc:"The process that answers"`
	// absent: there is only one, or one was chosen
	Databases []DatabaseState `json:"databases,omitempty" doc:"All databases, if there are several and none was chosen"`

	observe.Database
	Next string `json:"next,omitempty" doc:"The cursor of the next page of pipelines; absent: last page"`
}

// Status returns the state of all pipelines that the caller sees.
func (s *Service) Status(ctx context.Context) (Status, error) {
	who, err := gate.Asked(ctx, gate.RoleViewer)
	if err != nil {
		return Status{}, err
	}
	if s.OfNone() {
		return s.all(ctx, who)
	}
	pool, err := s.database()
	if err != nil {
		return Status{}, err
	}
	found, err := s.look.at(ctx, pool)
	if err != nil {
		return Status{}, err
	}
	return Status{
		At: found.at.UTC(), ReadOnly: s.config().Admin.ReadOnly, Program: s.program(who), Database: seen(who, found.Database),
	}, nil
}

// LookedAt returns when the tables were last read.
func (s *Service) LookedAt() time.Time { return s.look.lastAt() }

// seen returns the part of the state that a caller sees.
func seen(who gate.Caller, all observe.Database) observe.Database {
	if len(who.Pipelines) == 0 {
		return all
	}
	found := observe.Database{
		Slots: []report.Slot{}, Sidecars: []report.Sidecar{}, Pipelines: []observe.Pipeline{},
		Configuration: []report.Configuration{},
	}
	for i := range all.Pipelines {
		p := &all.Pipelines[i]
		if !who.Sees(p.Name) {
			continue
		}
		own := *p
		if own.State == health.Paused { // they name every paused pipeline
			own.Hints = nil
		}
		found.Pipelines = append(found.Pipelines, own)
		at := slices.IndexFunc(all.Slots, func(slot report.Slot) bool { return slot.Name == p.Slot })
		if at >= 0 && !slices.ContainsFunc(found.Slots, func(slot report.Slot) bool { return slot.Name == p.Slot }) {
			found.Slots = append(found.Slots, all.Slots[at])
		}
	}
	return found
}

// program returns the part of the process's state that a caller sees.
func (s *Service) program(who gate.Caller) Program {
	now := s.o.Snapshot()
	p := Program{
		Database: s.o.Name, Instance: now.Instance, Slot: now.Slot, Version: now.Version, Pid: now.Pid, Ready: true,
	}
	for _, c := range now.Ready() {
		if c.Err == nil || c.Aside { // the states of pipelines are shown with these
			continue
		}
		p.Ready = false
		if len(who.Pipelines)+len(who.Databases) == 0 { // it may be about a plugin that others use
			p.NotReady = append(p.NotReady, s.o.Redact(c.Name+": "+c.Err.Error()))
		}
	}
	return p
}

// StatusPage is Status with a page of these pipelines, or of all: the first limit by name after cursor.
func (s *Service) StatusPage(ctx context.Context, pipelines []string, cursor string, limit int) (Status, error) {
	now, err := s.Status(ctx)
	if err != nil {
		return now, err
	}
	if strings.ContainsRune(cursor, 0) {
		return now, badCursor()
	}
	names := map[string]bool{}
	if len(pipelines) > 0 {
		_, _, chosen, err := s.chosen(ctx, pipelines)
		if err != nil {
			return now, err
		}
		for _, name := range chosen {
			names[name] = true
		}
	}
	return now.page(func(name string) bool {
		return name > cursor && (len(pipelines) == 0 || names[name])
	}, limit), nil
}

// page keeps the first of the selected pipelines by name: limit of them, or usualStatus if limit is 0.
func (now Status) page(meant func(name string) bool, limit int) Status {
	limit = cmp.Or(limit, usualStatus)
	list := slices.DeleteFunc(slices.Clone(now.Pipelines), func(p observe.Pipeline) bool { return !meant(p.Name) })
	slices.SortFunc(list, func(a, b observe.Pipeline) int { return cmp.Compare(a.Name, b.Name) })
	if len(list) > limit {
		list, now.Next = list[:limit], list[limit-1].Name
	}
	now.Pipelines = list
	return now
}

// Pipeline returns the state of one pipeline.
func (s *Service) Pipeline(ctx context.Context, name string) (observe.Pipeline, error) {
	_, _, names, err := s.meant(ctx, gate.RoleViewer, []string{name})
	if err != nil {
		return observe.Pipeline{}, err
	}
	now, err := s.Status(ctx)
	if err != nil {
		return observe.Pipeline{}, err
	}
	for i := range now.Pipelines {
		if now.Pipelines[i].Name == names[0] {
			return now.Pipelines[i], nil
		}
	}
	return observe.Pipeline{}, noPipeline(name, nil)
}

// Defined returns the definition of a pipeline; nil if its table cannot be read now.
func (s *Service) Defined(ctx context.Context, name string) (*pipeline.Pipeline, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleViewer, []string{name})
	if err != nil {
		return nil, err
	}
	found, err := lookup.Named(ctx, pool, names)
	if len(found) == 0 || lookup.Find(found, names[0]) < 0 {
		return nil, err
	}
	return &found[0], nil
}

// History returns what pipelines did in a window until now: the named ones, or all that the caller sees.
func (s *Service) History(ctx context.Context, window string, pipelines []string) (report.Past, error) {
	who, pool, names, err := s.chosen(ctx, pipelines)
	if err != nil {
		return report.Past{}, err
	}
	if len(pipelines) == 0 && len(who.Pipelines) == 0 {
		names = nil
	}
	at := slices.IndexFunc(report.Windows, func(w report.Window) bool { return w.Name == window })
	if at < 0 {
		return report.Past{}, gate.Wrong("query.window", "expected 1h, 24h or 7d")
	}
	past, err := report.Windows[at].ReadPast(ctx, pool, names)
	if c := s.config(); c != nil {
		past.Currency = c.Currency
	}
	return past, err
}

// whole returns the caller, if it has a role for all pipelines, and the database.
func (s *Service) whole(ctx context.Context, role string) (who gate.Caller, pool *pgxpool.Pool, err error) {
	if who, err = gate.Wholly(ctx, role); err == nil {
		pool, err = s.database()
	}
	return who, pool, err
}

// meant returns the caller, and the full names of the named pipelines that it sees; without names, of all that it sees.
func (s *Service) meant(ctx context.Context, role string, names []string) (gate.Caller, *pgxpool.Pool, []string,
	error,
) {
	who, pool, his, err := s.his(ctx, role)
	if err == nil {
		names, err = among(his, names)
	}
	return who, pool, names, err
}

// chosen is like meant for lists: patterns and labels select matching pipelines that the caller sees.
func (s *Service) chosen(ctx context.Context, names []string) (gate.Caller, *pgxpool.Pool, []string, error) {
	who, pool, his, err := s.his(ctx, gate.RoleViewer)
	if err == nil {
		names, err = among(his, lookup.Matching(his, names))
	}
	return who, pool, names, err
}

type onceKey struct{}

// Once returns a context for a page with several queries: pipelines are listed and loaded at most once.
func (s *Service) Once(ctx context.Context) context.Context {
	return context.WithValue(lookup.Once(ctx), onceKey{}, sync.OnceValues(func() ([]pipeline.Pipeline, error) {
		pool, err := s.database()
		if err != nil {
			return nil, err
		}
		return lookup.Brief(ctx, pool)
	}))
}

// his returns the caller and the pipelines that it sees.
func (s *Service) his(ctx context.Context, role string) (who gate.Caller, pool *pgxpool.Pool, his []pipeline.Pipeline,
	err error,
) {
	if who, err = gate.Asked(ctx, role); err != nil {
		return who, nil, nil, err
	}
	if pool, err = s.database(); err != nil {
		return who, nil, nil, err
	}
	ask, asked := ctx.Value(onceKey{}).(func() ([]pipeline.Pipeline, error))
	if !asked {
		ask = func() ([]pipeline.Pipeline, error) { return lookup.Brief(ctx, pool) }
	}
	all, err := ask()
	hidden := func(p pipeline.Pipeline) bool { return !who.Sees(p.Name) }
	return who, pool, slices.DeleteFunc(slices.Clone(all), hidden), err
}

// Names returns the names of the serving pipelines that the caller sees.
func (s *Service) Names(ctx context.Context) ([]string, error) {
	_, pool, his, err := s.his(ctx, gate.RoleViewer)
	if err != nil {
		return nil, err
	}
	next, err := lookup.NextGenerations(ctx, pool)
	return slices.DeleteFunc(lookup.Names(his), func(name string) bool { return slices.Contains(next, name) }), err
}

// among returns the full names of pipelines, without duplicates; without names, all of them.
func among(his []pipeline.Pipeline, names []string) (meant []string, err error) {
	if len(names) == 0 {
		return lookup.Names(his), nil
	}
	for _, name := range names {
		at := lookup.Meant(his, name)
		if at < 0 {
			return nil, noPipeline(name, lookup.Names(his))
		}
		meant = lists.Add(meant, his[at].Name)
	}
	return meant, nil
}

// noPipeline is the answer for a pipeline that does not exist, or that the caller may not see.
func noPipeline(name string, known []string) error {
	err := refusal.UnknownPipeline(name, known)
	return &gate.Problem{Status: http.StatusNotFound, Reason: "pipeline_not_found", Code: code.NoPipeline, Detail: err.Problem, Hints: err.Hint}
}

// noText is the answer for a caller that may not see texts of rows.
func noText(detail string) *gate.Problem {
	return gate.Refuse(http.StatusForbidden, "row_text", detail, "they are shown to the roles operator and admin where http.admin.show_row_text is on")
}

// barred returns why the program's connections must not read the text of a pipeline's rows: that would bypass policies
// of its table. A dropped table has no text.
func (s *Service) barred(ctx context.Context, pool *pgxpool.Pool, name string) error {
	found, err := lookup.Named(ctx, pool, []string{name})
	if at := lookup.Find(found, name); err == nil && at >= 0 {
		err = search.Barred(ctx, pool, &found[at], s.access(name))
	}
	return err
}

// Explain returns the story of a row; with text also its text, which not every caller may see.
func (s *Service) Explain(ctx context.Context, pipeline, key string, text bool) (explain.Story, error) {
	who, pool, names, err := s.meant(ctx, gate.RoleViewer, []string{pipeline})
	if err != nil {
		return explain.Story{}, err
	}
	if text && !who.RowText {
		return explain.Story{}, noText("texts of rows are not shown to this token")
	}
	barred := s.barred(ctx, pool, names[0])
	if text && barred != nil {
		return explain.Story{}, barred
	}
	list, err := explain.Read(ctx, pool, names[0], []string{key}, explain.Options{
		Text: text, Redact: s.o.Redact, HideLength: barred != nil,
		HideHashes: barred != nil || !who.RowText, // the hash of a short text reveals it
	})
	if err != nil {
		return explain.Story{}, err
	}
	if !list[0].Known() {
		return list[0], gate.Refuse(http.StatusNotFound, "row_not_found", fmt.Sprintf("pipeline %s knows no row with the key %q", names[0], key), "keys are written as /api/v1/tasks, tasks list, search and verify show them")
	}
	return list[0], nil
}

// TaskQuery selects tasks; zero fields select all.
type TaskQuery struct {
	Pipelines []string
	report.TaskFilter

	Cursor string // of the previous page
	Limit  int    // 0: 100
}

// TaskPage is a page of tasks, the oldest first.
type TaskPage struct {
	Tasks []report.Task `json:"tasks"`
	Next  string        `json:"next,omitempty" doc:"The cursor of the next page; absent: last page"`
}

// Default lengths of pages. Routes limit them to 1000.
const (
	usualPage   = 100
	usualStatus = 10
)

// Tasks returns a page of the tasks of pipelines that the caller sees.
func (s *Service) Tasks(ctx context.Context, q TaskQuery) (TaskPage, error) {
	who, pool, names, err := s.chosen(ctx, q.Pipelines)
	page := TaskPage{Tasks: []report.Task{}}
	if err != nil {
		return page, err
	}
	for _, state := range q.States {
		if !slices.Contains(report.TaskStates, state) {
			return page, gate.Wrong("query.state", fmt.Sprintf("there is no state %q", state))
		}
	}
	if len(names) == 0 {
		return page, nil
	}
	if slices.Contains(q.States, report.Finished) { // that reads a partition of the history
		if err := s.counting.take(ctx); err != nil {
			return page, err
		}
		defer s.counting.giveBack()
	}
	limit := cmp.Or(q.Limit, usualPage)
	list, err := verbs.New(pool, who.SaidBy()).Tasks(ctx, names, q.TaskFilter, q.Cursor, limit+1, s.o.Redact)
	if errors.Is(err, report.ErrCursor) {
		return page, badCursor()
	}
	if err != nil {
		return page, err
	}
	page.Tasks = list[:min(limit, len(list))]
	if len(list) > limit {
		page.Next = list[limit-1].Cursor
	}
	return page, nil
}

func badCursor() error { return gate.Wrong("query.cursor", "it is not the value of next from a page") }

// Errors returns the groups of errors of pipelines that the caller sees, the largest first.
func (s *Service) Errors(ctx context.Context, pipelines []string) ([]report.ErrorGroup, error) {
	_, _, names, err := s.chosen(ctx, pipelines)
	if err != nil {
		return nil, err
	}
	now, err := s.Status(ctx)
	list := []report.ErrorGroup{}
	for i := range now.Pipelines {
		if slices.Contains(names, now.Pipelines[i].Name) {
			list = append(list, now.Pipelines[i].Errors...)
		}
	}
	slices.SortStableFunc(list, func(a, b report.ErrorGroup) int { return cmp.Compare(b.Rows, a.Rows) })
	return list, err
}

// AuditPage is a page of audit entries, the newest first.
type AuditPage struct {
	Actions []report.Action `json:"actions"`
	Next    string          `json:"next,omitempty" doc:"The cursor of the next page; absent: last page"`
}

// Audit returns a page of the actions on pipelines that the caller sees, or of all actions if it sees all pipelines.
// cursor is from the previous page; "": the first page.
func (s *Service) Audit(ctx context.Context, pipelines []string, cursor string, limit int) (AuditPage, error) {
	who, pool, names, err := s.chosen(ctx, pipelines)
	page := AuditPage{Actions: []report.Action{}}
	if err != nil {
		return page, err
	}
	before, err := strconv.ParseInt(cmp.Or(cursor, strconv.Itoa(math.MaxInt64)), 10, 64)
	if err != nil || before < 0 {
		return page, badCursor()
	}
	if len(pipelines) == 0 && len(who.Pipelines) == 0 {
		names = nil // includes actions on all pipelines, and on removed ones
	} else if len(names) == 0 {
		return page, nil
	}
	limit = cmp.Or(limit, usualPage)
	list, err := verbs.New(pool, who.SaidBy()).Audit(ctx, names, before, limit+1)
	if err != nil {
		return page, err
	}
	page.Actions = list[:min(limit, len(list))]
	if len(list) > limit {
		page.Next = strconv.FormatInt(list[limit-1].ID, 10)
	}
	return page, nil
}
