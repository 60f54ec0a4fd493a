package explain

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

const (
	mostBytes = 4 * rows.MaxText // of a text, for its length
)

// Options configure Read.
type Options struct {
	Text bool // include the text of the row
	// HideHashes leaves out the hashes, with which a reader could guess a short text.
	HideHashes bool
	HideLength bool // leaves out how long the text is
	// Outside leaves out what only operators may know: messages, sidecars, sessions, and why a pipeline does not work.
	Outside bool
	Redact  func(string) string // removes secrets from messages; nil: none
	// Count returns how many tokens a pipeline's model sees in a text, and its limit; nil: tokens are not counted.
	Count func(ctx context.Context, p *pipeline.Pipeline, text string) (n, most int, err error)
}

// Read returns the stories of rows of a pipeline, given by their keys.
func Read(ctx context.Context, pool *pgxpool.Pool, name string, keys []string, o Options) ([]Story, error) {
	found, err := lookup.Named(ctx, pool, []string{name})
	if err != nil {
		return nil, err
	}
	p := &found[0]
	state, err := where(ctx, pool, p)
	if err != nil {
		return nil, err
	}
	list := make([]Story, len(keys))
	for i, key := range keys {
		s := &list[i]
		err := database.UntilUnlocked(ctx, func() (err error) { *s, err = read(ctx, pool, p, key, o); return err })
		if err == nil && o.HideHashes {
			s.HideHashes()
		}
		// No transaction is open here, because a model may be slow.
		if r := &s.Row; err == nil && o.Count != nil && r.Wanted() && r.Characters != nil {
			r.Tokens, err = o.tokens(ctx, p, r.text)
		}
		if o.HideLength {
			s.Row.Characters, s.Row.Bytes, s.Row.Cut, s.Row.Tokens = nil, 0, false, nil
		}
		if err == nil {
			s.State, s.Table = state, p.Source()
			if o.Outside {
				s.hideOperation()
			}
			err = s.tell(ctx, pool)
		}
		if err != nil {
			return nil, fmt.Errorf("explain row %q of pipeline %q: %w", key, p.Name, err)
		}
	}
	return list, nil
}

func (o Options) tokens(ctx context.Context, p *pipeline.Pipeline, text string) (*Tokens, error) {
	n, most, err := o.Count(ctx, p, text)
	if err != nil {
		return nil, fmt.Errorf("count tokens: %w", err)
	}
	return &Tokens{n, most, most > 0 && n > most && !p.Chunking.On()}, nil
}

func where(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline) (State, error) {
	all, err := report.Options{CountUpTo: -1, Loaded: []pipeline.Pipeline{*p}, Only: p.ID}.Read(ctx, pool)
	if err != nil || len(all.Pipelines) == 0 {
		return State{}, err
	}
	now := &all.Pipelines[0]
	return State{now.State, now.Reason, now.Hints, now.Works, now.Checkpoint, now.ScanPhase != "done"}, nil
}

// tell lets the database derive the sentences and the verdict from what was read.
func (s *Story) tell(ctx context.Context, db database.Reader) error {
	list, err := database.Collect(ctx, db, "tell_story", pgx.RowToStructByPos[told], pgx.StrictNamedArgs{"story": s})
	if err != nil {
		return fmt.Errorf("derive the verdict: %w", err)
	}
	for _, one := range list {
		s.Sentences = append(s.Sentences, one.Sentence)
		if one.Topic == "verdict" {
			s.Verdict = Verdict{one.Facts.Verdict, one.Text, one.Facts.Hints}
		}
	}
	return nil
}

// told is a sentence with those of its facts that the verdict needs.
type told struct {
	Sentence

	Facts struct {
		Verdict Code     `json:"verdict"`
		Hints   []string `json:"hints"`
	}
}

// read reads everything about a row in one snapshot. A key in another spelling finds the row that it denotes.
func read(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline, key string, o Options) (Story, error) {
	tx, err := database.BeginSnapshot(ctx, pool)
	if err != nil {
		return Story{}, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // the transaction only reads
	s := Story{Pipeline: p.Name, Key: key, Model: p.Model}
	r, err := s.row(ctx, tx, p, o)
	if err != nil {
		return s, err
	}
	if r.Found && r.Actual != key {
		s = Story{Pipeline: p.Name, Key: r.Actual, AskedAs: key, Model: p.Model}
		if r, err = s.row(ctx, tx, p, o); err != nil {
			return s, err
		}
	}
	if err := s.tables(ctx, tx, p, o); err != nil {
		return s, err
	}
	if s.Ledger != nil && s.Row.Read {
		s.compare(&r)
	}
	return s, nil
}

// row reads the row with its ledger entry and destination. An error that this row causes becomes part of the story.
func (s *Story) row(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, o Options) (r rows.Row, err error) {
	s.Vector.Wanted = p.Generation
	if p.Status != pipeline.Active {
		return r, nil
	}
	inner, err := tx.Begin(ctx) // an error ends only this savepoint
	if err != nil {
		return r, err
	}
	found, err := rows.New(p, inner, rows.Options{}).Read(ctx, []string{s.Key}, mostBytes)
	if err := errors.Join(ctx.Err(), inner.Rollback(context.WithoutCancel(ctx))); err != nil {
		return r, err
	}
	if err != nil {
		return r, s.refused(ctx, tx, p, err)
	}
	r = found[0]
	t := rows.New(p, tx, rows.Options{})
	s.Row = rowOf(&r, o.Text)
	s.Vector = Vector{
		Stored: r.Stored, Ours: t.Holds(&r), Generation: r.StoredGeneration, Wanted: p.Generation,
		Current: t.Unchanged(&r), Skipped: t.Skipped(&r),
	}
	return r, nil
}

// refused records what an error says about the row: an impossible key, or a text or filter that fails. It returns any
// other error.
func (s *Story) refused(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, failed error) error {
	tries := func(look func(t *rows.Table) bool) (bool, error) {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return false, err
		}
		yes := look(rows.New(p, inner, rows.Options{}))
		return yes, inner.Rollback(context.WithoutCancel(ctx))
	}
	switch is, err := tries(func(t *rows.Table) bool { return t.IsKey(ctx, s.Key) }); {
	case err != nil:
		return err
	case !is:
		s.Row = Row{Read: true}
		return nil
	}
	switch ofRow, err := tries(func(t *rows.Table) bool { return t.OfSomeRow(ctx, failed) }); {
	case err != nil:
		return err
	case !ofRow:
		return failed
	}
	s.Row.SQLState = "unknown"
	if pg, ok := errors.AsType[*pgconn.PgError](failed); ok { // the server's message may hold values of the row
		s.Row.SQLState = pg.Code
	}
	return nil
}

// rowOf converts a row for the story.
func rowOf(r *rows.Row, text bool) Row {
	row := Row{Read: true, Exists: r.Found, Taken: r.Keep, Bytes: r.Bytes}
	if !r.Found || !r.Keep {
		return row
	}
	row.Empty = !r.Wanted()
	if r.Hashed && !row.Empty {
		row.TextHash = hex.EncodeToString(r.TextHash[:])
	}
	if r.LeftOut() {
		return row
	}
	n := utf8.RuneCountInString(r.Text)
	row.Characters, row.Bytes, row.Cut, row.text = &n, len(r.Text), n >= rows.MaxText, r.Text
	if text {
		row.Text = &r.Text
	}
	return row
}

// tables reads what the queue and the ledger hold about the row.
func (s *Story) tables(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, o Options) error {
	var text []byte
	err := tx.QueryRow(ctx, sqlfiles.Query("row_facts"),
		pgx.StrictNamedArgs{"pipeline_id": p.ID, "row_key": s.Key}).Scan(&text)
	if err != nil {
		return fmt.Errorf("read the state of the row: %w", err)
	}
	known := struct {
		Task    **Task     `json:"task"`
		Ledger  **Ledger   `json:"ledger"`
		History *[]Outcome `json:"history"`
	}{&s.Task, &s.Ledger, &s.History}
	if err := json.Unmarshal(text, &known); err != nil {
		return fmt.Errorf("read the state of the row: %w", err)
	}
	if t := s.Task; t != nil {
		t.CommittedAt, t.CreatedAt = t.CommittedAt.UTC(), t.CreatedAt.UTC()
		if o.Redact != nil {
			t.Message = o.Redact(t.Message)
		}
		utc(t.LeasedUntil, t.ScheduledAt, t.StartedAt, t.FinishedAt)
		if t.Code == "locked" && p.InSource() && p.Status == pipeline.Active {
			if err := s.lockers(ctx, tx, p); err != nil {
				return err
			}
		}
	}
	if s.Ledger != nil {
		s.Ledger.WrittenAt = s.Ledger.WrittenAt.UTC()
	}
	for i := range s.History {
		h := &s.History[i]
		h.FinishedAt, h.CommittedAt = h.FinishedAt.UTC(), h.CommittedAt.UTC()
		utc(h.CreatedAt, h.ScheduledAt, h.StartedAt)
	}
	return nil
}

func utc(times ...*time.Time) {
	for _, t := range times {
		if t != nil {
			*t = t.UTC()
		}
	}
}

// lockers finds the sessions that hold a lock on the row: those of the last transaction that locked or changed it,
// while it is open.
func (s *Story) lockers(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) error {
	values, err := pipeline.SplitKey(s.Key, len(p.Key))
	if err != nil {
		return nil // there is no such row, so no session has locked it
	}
	places, args := make([]string, len(values)), make([]any, len(values))
	for i := range values {
		places[i], args[i] = p.Key[i].Typed(fmt.Sprintf("$%d", i+1)), values[i]
	}
	var xmax string
	err = tx.QueryRow(ctx, "SELECT d.xmax::text FROM "+database.Quote(p.Schema, p.Table)+" AS d WHERE "+
		p.MatchKey("d", places), args...).Scan(&xmax)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up who has locked the row: %w", err)
	}
	s.Task.LockedBy, err = database.Collect(ctx, tx, "row_lockers", pgx.RowTo[string], pgx.StrictNamedArgs{"xmax": xmax})
	return err
}

// compare records whether the ledger entry matches the current row.
func (s *Story) compare(r *rows.Row) {
	l := s.Ledger
	l.SourceAgrees, l.TextAgrees, l.Ignored = r.SameSource(), r.SameText(), r.Ignored()
	if s.Vector.Ours {
		s.Vector.AtLeastSeconds = &l.WrittenSecondsAgo
	}
}
