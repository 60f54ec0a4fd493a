package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// recall takes the columns that text and filter read from the pipeline's row, and checks that this is still valid.
func (f *Findings) recall(ctx context.Context, tx pgx.Tx, s *Stored) error {
	p, t := &f.Pipeline, f.Table
	const again = "run embedsidecar init after changing the pipeline: it takes over what changed"
	if keys := pipeline.KeyNames(t.Key); !slices.Equal(keys, s.KeyColumns) {
		return refusal.For(s.Name, "", fmt.Sprintf("the key of %s is now (%s) and was (%s)", t.Quoted(),
			database.QuoteAll(keys), database.QuoteAll(s.KeyColumns)), again)
	}
	for _, name := range slices.Concat(s.Watched, columnsOfText(s)) {
		if _, ok := t.Column(name); !ok {
			return refusal.For(s.Name, "", fmt.Sprintf("table %s has no column %q any more", t.Quoted(), name),
				append(spelling.DidYouMean(name, t.ColumnNames()), again)...)
		}
	}
	switch columns := columnsOfText(s); {
	case s.AsMade, s.WatchAll:
	case columns != nil && s.Filter == "" && s.Chunking.Context == "" && len(s.Joins) == 0:
		var err error
		if p.Watched, err = watchedOf(ctx, tx, t, columns); err != nil {
			return err
		}
		s.Watched = p.Watched
	default:
		// For expressions that may read any column, only init finds out what generated columns are computed from.
		if p.InSource() {
			return refusal.For(s.Name, "", "a generated column of "+t.Quoted()+
				" has another expression now: what the text reads must be inspected again", "run embedsidecar init")
		}
		p.Watched, p.WatchAll = nil, true
	}
	if !p.WatchAll {
		// The generated columns in a user's text are missing here, and so are the columns of the priority. Running the
		// expressions over no row reports missing privileges on them.
		f.Reads = lists.Add(append([]string{}, s.Watched...), columnsOfText(s)...)
		f.Looks = f.Reads
	}
	return nil
}

// watchedOf returns the columns to watch for a text of plain columns, without those of the key: the columns themselves,
// or those they are generated from.
func watchedOf(ctx context.Context, q database.Querier, t *catalog.Table, columns []string) ([]string, error) {
	watched, err := database.Collect(ctx, q, "watched_columns", pgx.RowTo[string], pgx.StrictNamedArgs{
		"table":   t.OID,
		"columns": columns,
		"key":     pipeline.KeyNames(t.Key),
	})
	return watched, wrap.Errorf(err, "look up what columns are made of")
}

// Load returns the stored pipelines of a slot, for a role that may only run them. A pipeline that cannot work is
// returned with a status other than active and a detail with the reason. Then only its spec, ID, OID, generation,
// fingerprint, width and watched columns are valid, and if its table is locked also the names of its key. Load returns
// *NotSetUpError when the database lacks our schema.
func Load(ctx context.Context, db database.Beginner, slot string) ([]pipeline.Pipeline, error) {
	return (&Loader{Once: true}).Load(ctx, db, slot)
}

// Load is the function of that name with a cache: it skips unchanged pipelines.
func (l *Loader) Load(ctx context.Context, db database.Beginner, slot string) ([]pipeline.Pipeline, error) {
	const tries = 10
	for i := 1; ; i++ {
		pipelines, settled, err := l.load(ctx, db, slot)
		if err != nil || settled || i == tries {
			return pipelines, err
		}
	}
}

// load is one attempt of Load. It returns false if generations were switched meanwhile: names that were read before
// would refer to vectors of another model.
func (l *Loader) load(ctx context.Context, db database.Beginner, slot string) (pipelines []pipeline.Pipeline,
	settled bool, err error,
) {
	var stored []Stored
	var marks map[int32]string
	var changed map[int32]bool
	var known []pipeline.Pipeline
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) (err error) {
		if err := database.KeepPlansHere(ctx, tx); err != nil {
			return err
		}
		if err := l.current(ctx, tx); err != nil {
			return err
		}
		if marks, changed, err = l.marks(ctx, tx, slot); err != nil {
			return refusal.NotSetUp(err)
		}
		var only []int32
		if known, only = l.recall(marks); len(known) > 0 && len(only) == 0 {
			stored = nil
			return nil
		}
		stored, err = readStored(ctx, tx, &slot, only)
		return refusal.NotSetUp(err)
	})
	if err != nil {
		return nil, false, err
	}
	if l.Once {
		l.Rows = stored
	}
	if len(stored) == 0 {
		return append([]pipeline.Pipeline{}, known...), true, nil
	}
	pipelines = make([]pipeline.Pipeline, len(stored))
	var rest []int
	var list []catalog.Want
	for i := range stored {
		list = append(list, wants(stored[i].Spec, &stored[i])...)
	}
	var tables *catalog.Known
	if err = database.ReadOnly(ctx, db, func(tx pgx.Tx) error {
		tables = together(ctx, tx, list)
		whole := tables != nil // false after an error, which aborts the transaction
		for i := range stored {
			s := &stored[i]
			if whole && l.Changed && s.Status == pipeline.Active && !changed[s.ID] {
				pipelines[i], err = load(ctx, tx, s.Current(), tables, 0)
				whole = err == nil
			}
			if pipelines[i].ID == 0 || !whole {
				rest = append(rest, i)
			}
		}
		return nil
	}); err != nil {
		return nil, false, err
	}
	limit := planTime
	for _, i := range rest {
		if l.overran(stored[i].ID) {
			pipelines[i] = overrun(&stored[i])
			continue
		}
		var late bool
		if pipelines[i], late, err = look(ctx, db, &stored[i], tables, limit); err != nil {
			return nil, false, err
		}
		if late {
			l.rest(stored[i].ID)
			limit = max(limit/2, leastPlanTime)
		}
	}
	if settled, err = stillSo(ctx, db, stored); err != nil || !settled {
		return pipelines, settled, err
	}
	for i := range pipelines {
		l.remember(pipelines[i].ID, marks[pipelines[i].ID], &pipelines[i])
	}
	pipelines = slices.Concat(known, pipelines)
	slices.SortFunc(pipelines, func(a, b pipeline.Pipeline) int { return cmp.Compare(a.ID, b.ID) })
	return pipelines, true, nil
}

// planTime is how long the server may plan the statement of one pipeline: it evaluates functions that an owner declares
// immutable, in an index or an expression. All pipelines wait for it. After one that takes longer, the next ones of a
// load have half the time, but at least leastPlanTime.
const (
	planTime      = 5 * time.Second
	leastPlanTime = time.Second
)

// look confirms one stored pipeline in a transaction of its own: one that held locks on several tables, however weak,
// could deadlock with a user's TRUNCATE. limit is the time for the plan; late reports that it was not enough.
func look(ctx context.Context, db database.Beginner, s *Stored, known *catalog.Known, limit time.Duration) (
	p pipeline.Pipeline, late bool, err error,
) {
	err = database.ReadOnly(ctx, db, func(tx pgx.Tx) (err error) {
		begun := time.Now()
		err = database.Limited(ctx, 2*limit, func(ctx context.Context) (err error) { //nolint:mnd // the server ends it before
			p, err = load(ctx, tx, s.Current(), known, limit)
			return err
		})
		if errors.Is(err, database.ErrTooLong) {
			p, late = overrun(s), true
			return nil
		}
		if ctx.Err() == nil && !tx.Conn().IsClosed() && (database.OfStatement(err) || database.OfCode(err)) {
			if database.Judge(err) == database.Canceled && time.Since(begun) > limit {
				p, late = overrun(s), true
				return nil
			}
			p, err = sick(s, err), nil
		}
		return err
	})
	if database.LockedOut(err) {
		// The table is being altered. The other pipelines continue, and this one is looked at again. It does not count
		// as one that cannot work, so callers that wait for it keep waiting.
		return locked(s), false, nil
	}
	return p, late, err
}

// stillSo reports whether no inspected pipeline was switched since its row was read.
func stillSo(ctx context.Context, db database.Beginner, looked []Stored) (same bool, err error) {
	ids := lists.Map(looked, func(s Stored) int32 { return s.ID })
	switches := lists.Map(looked, func(s Stored) int64 { return s.Switches })
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM unnest($1::integer[], $2::bigint[]) AS l (id, switches)
			JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.id WHERE p.switches <> l.switches)`, ids, switches).Scan(&same)
	})
	return same && err == nil, wrap.Errorf(err, "read pipelines")
}

// Settled is Load with retries while a table is locked, for callers that load once.
func (l *Loader) Settled(ctx context.Context, db database.Beginner, slot string) (pipelines []pipeline.Pipeline,
	err error,
) {
	var failed error // Load has its own retries
	err = database.UntilUnlocked(ctx, func() error {
		pipelines, failed = l.Load(ctx, db, slot)
		if slices.ContainsFunc(pipelines, func(p pipeline.Pipeline) bool { return p.Status == pipeline.Locked }) {
			return database.ErrLocked
		}
		return nil
	})
	if errors.Is(err, database.ErrLocked) {
		err = nil // the pipeline's status shows it
	}
	return pipelines, errors.Join(failed, err)
}

// Off returns a stored pipeline marked as misconfigured, with only the valid fields.
func Off(s *Stored) pipeline.Pipeline {
	p := s.Pipeline
	p.Status = pipeline.Misconfigured
	return p
}

// locked returns a stored pipeline whose table is locked. Its changes are matched as it was set up, which needs only
// the names of the key columns. Without them, each change would ask for a scan.
func locked(s *Stored) pipeline.Pipeline {
	p := Off(s)
	p.Status, p.Detail = pipeline.Locked, "the table is locked by another session"
	p.WatchAll = p.WatchAll || !s.AsMade
	for _, name := range s.KeyColumns {
		p.Key = append(p.Key, pipeline.KeyColumn{Name: name})
	}
	return p
}

// sick returns a stored pipeline that the server rejects, so that the other pipelines can continue.
func sick(s *Stored, err error) pipeline.Pipeline {
	p := Off(s)
	p.Detail = detail("the server rejects it: "+database.Words(err), []string{
		"fix what the server names, or change the pipeline and run embedsidecar init; the pipeline then continues",
	})
	return p
}

// overrun returns a stored pipeline whose statement the server plans for too long.
func overrun(s *Stored) pipeline.Pipeline {
	p := Off(s)
	p.Detail = detail(fmt.Sprintf("the server takes more than %s to plan its statement: a function that is declared "+
		"immutable takes too long, in an index of the table or in an expression", planTime), []string{
		"drop the index, or make the function faster; the pipeline then continues within a minute",
	})
	return p
}

// load confirms one stored pipeline. It returns an error only if it could not find out. Without a limit, which is the
// time for the plan, it does not parse the expressions, which would lock the table: they are known to be valid.
func load(ctx context.Context, tx pgx.Tx, s *Stored, known *catalog.Known, limit time.Duration) (pipeline.Pipeline,
	error,
) {
	off := Off(s)
	f, err := Inspect(ctx, tx, s.Spec, catalog.Vectors{Dims: s.Dims, Either: true, Known: known}, s)
	var (
		missing *refusal.MissingError
		config  *refusal.ConfigError
		denied  *refusal.PermissionError
	)
	if err == nil && !f.Destination.Exists {
		err = refusal.Coded(code.Destination, "the destination "+f.Pipeline.DestinationName()+" is gone",
			"run embedsidecar init: it recreates it")
	}
	if err == nil {
		err = f.behind()
	}
	if err == nil {
		err = knownStill(ctx, tx, s)
	}
	if err == nil {
		err = catalog.LostFunctions(ctx, tx, s.Tables(), s.Functions)
	}
	switch {
	case err == nil && limit > 0:
		err = runnable(ctx, tx, f, limit)
	case err == nil:
		err = f.Permitted()
	}
	switch {
	case errors.As(err, &missing):
		off.Status = pipeline.Missing
		off.Detail = "the source table " + database.Quote(s.Schema, s.Table) + " was dropped"
	case errors.As(err, &config):
		off.Detail = detail(config.Problem, config.Hint)
	case errors.As(err, &denied):
		off.Detail = refused(denied)
	case err != nil:
		return off, fmt.Errorf("load pipeline %q: %w", s.Name, err)
	case !s.Published:
		off = f.Pipeline
		off.Status = pipeline.Unpublished
		what := f.Table.Quoted()
		if len(f.Joined) > 0 {
			what += ", or a table joined to it,"
		}
		off.Detail = detail(what+" is not in the publication, or not with all of its changes",
			[]string{"run embedsidecar init as its owner"})
	default:
		return f.Pipeline, nil
	}
	return off, nil
}

// knownStill returns *ConfigError when the server no longer knows the time zone of a stored pipeline's hours. It uses
// the expression that checks the hours, not the list of all zones.
func knownStill(ctx context.Context, q database.Querier, s *Stored) error {
	zone := s.Active.Zone()
	if zone == "UTC" {
		return nil
	}
	var known bool
	err := q.QueryRow(ctx, "SELECT embedsidecar.minute_of_week($1) IS NOT NULL", zone).Scan(&known)
	if err != nil || known {
		return err
	}
	return unknownZone(s.Name, "active", zone)
}

// refused describes the denied privilege and its remedy.
func refused(denied *refusal.PermissionError) string {
	problem := fmt.Sprintf("role %q may not %s", denied.Role, denied.What)
	if denied.Err != nil {
		problem += ": " + database.Words(denied.Err)
	}
	if len(denied.SQL) > 0 {
		problem += "; an owner of its tables, or a superuser, runs"
	}
	return detail(problem, denied.SQL)
}

func detail(problem string, hint []string) string {
	for _, h := range hint {
		problem += "; " + strings.TrimSuffix(h, ";")
	}
	return problem
}

// runnable checks that the stored text, filter, context and priority are one expression each, whoever wrote them, and
// runs them over no row. The server then looks up names and privileges as it does in real statements. All of it uses
// the extended protocol, in which the server refuses several statements.
func runnable(ctx context.Context, tx pgx.Tx, f *Findings, limit time.Duration) error {
	sql := "SELECT " + f.Pipeline.TextExpression() + ", " + f.Pipeline.ContextExpression() + ", " +
		f.Pipeline.FilterExpression() + ", " + f.Pipeline.LaneExpression() + ", " + f.Pipeline.Normalised(f.Pipeline.TextExpression()) +
		" FROM " + f.Pipeline.Source() + " AS r LIMIT 0"
	err := errors.Join(f.parseJoins(ctx, tx), parseStored(ctx, tx, f))
	if err == nil {
		err = database.Within(ctx, tx, limit)
	}
	if err == nil {
		err = database.Extended(ctx, tx, sql)
	}
	if database.Denied(err) {
		if missing := f.Permitted(); missing != nil {
			return missing
		}
		if missing := unreadable(f); missing != nil {
			return missing
		}
		return refusal.For(f.Pipeline.Name, "", "read "+f.Table.Quoted()+": "+database.Words(err))
	}
	if _, told := errors.AsType[*refusal.ConfigError](err); err != nil && !told {
		err = catalog.BadExpression(catalog.TextWord, err)
	}
	if err != nil {
		return refusal.Of(f.Pipeline.Name, err)
	}
	return f.Permitted()
}

// unreadable returns *PermissionError for columns that a user's expressions seem to name and that the role may not
// read, or nil.
func unreadable(f *Findings) error {
	p := &f.Pipeline
	said := p.Text + "\n" + p.Filter + "\n" + p.Chunking.Context + "\n" + p.PriorityBy
	hidden := slices.DeleteFunc(f.Table.Unreadable(), func(name string) bool { return !strings.Contains(said, name) })
	if len(hidden) == 0 {
		return nil
	}
	return &refusal.PermissionError{
		What: fmt.Sprintf("run pipeline %q: read column %s of %s", p.Name, database.QuoteAll(hidden), f.Table.Quoted()),
		Role: f.Table.Reader,
		SQL: []string{"GRANT SELECT (" + database.QuoteAll(hidden) + ") ON " + f.Table.Quoted() + " TO " +
			database.Quote(f.Table.Reader) + ";"},
	}
}

// parseStored makes the server parse each expression of a stored pipeline without running it.
func parseStored(ctx context.Context, tx pgx.Tx, f *Findings) error {
	p := &f.Pipeline
	for _, e := range []struct{ word, expression string }{
		{catalog.TextWord, p.Text},
		{catalog.FilterWord, p.Filter},
		{catalog.ContextWord, p.Chunking.Context},
		{catalog.PriorityWord, p.PriorityBy},
		{catalog.IgnoreWord, p.Ignore},
	} {
		if strings.TrimSpace(e.expression) == "" {
			continue
		}
		if err := catalog.ParseExpression(ctx, tx, f.Table, e.word, e.expression); err != nil {
			return err
		}
	}
	return nil
}
