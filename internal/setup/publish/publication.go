// Package publish reads our publication, and plans the changes that make it send the tables of pipelines.
package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Publication is the catalog's information about our publication.
type Publication struct {
	OID       uint32
	Owner     string
	OwnedByUs bool
	Trusted   bool // its owner is trusted
	AllTables bool
	ViaRoot   bool
	AllKinds  bool             // it publishes insert, update, delete and truncate
	Entries   map[uint32]Entry `db:"-"`
}

// Entry is a table's entry in a publication.
type Entry struct {
	Columns  []int16  // of the column list; nil: all
	Filtered bool     // a row filter hides changes
	Name     string   // quoted
	Above    []uint32 // the partitioned tables above it
}

// Wanted is how the publication must list a table.
type Wanted struct {
	Table   *catalog.Table
	Columns []string // nil: all
}

// SQL returns the table with its columns, as in a CREATE PUBLICATION statement.
func (p Wanted) SQL() string {
	only := "ONLY "
	if p.Table.Kind == "p" {
		only = ""
	}
	if p.Columns == nil {
		return only + p.Table.Quoted()
	}
	return only + p.Table.Quoted() + " (" + database.QuoteAll(p.Columns) + ")"
}

// Version15 is the first version with column lists and row filters in publications.
const Version15 = 150000

// Find reads a publication; nil: it does not exist.
func Find(ctx context.Context, tx pgx.Tx, name string) (*Publication, error) {
	found, err := database.Collect(ctx, tx, "find_publication", pgx.RowToAddrOfStructByName[Publication],
		pgx.StrictNamedArgs{"name": name, "trusted": database.Trusted(tx.Conn())})
	if err != nil || len(found) == 0 {
		return nil, wrap.Errorf(err, "look up publication %q", name)
	}
	p := found[0]
	tables, err := database.Collect(ctx, tx, "publication_tables", pgx.RowToStructByName[struct {
		OID uint32
		Entry
	}], pgx.StrictNamedArgs{"publication": p.OID})
	if err != nil {
		return nil, fmt.Errorf("look up tables of publication %q: %w", name, err)
	}
	p.Entries = map[uint32]Entry{}
	for _, t := range tables {
		p.Entries[t.OID] = t.Entry
	}
	return p, nil
}

// Unfit returns why an existing publication cannot be used, or nil.
func (p *Publication) Unfit(name string) *refusal.ConfigError {
	wrong := func(what, hint string) *refusal.ConfigError {
		return &refusal.ConfigError{
			Problem: fmt.Sprintf("publication %q %s", name, what), Hint: []string{hint}, Code: code.Publication,
		}
	}
	switch {
	case p.AllTables:
		return wrong("publishes all tables: what we write would come back as changes",
			"choose another name for the publication")
	case p.ViaRoot:
		return wrong("has publish_via_partition_root: the TRUNCATE of a partition would go unnoticed",
			"ALTER PUBLICATION "+database.Quote(name)+" SET (publish_via_partition_root = false);")
	case !p.AllKinds:
		return wrong("leaves out some kinds of changes",
			"ALTER PUBLICATION "+database.Quote(name)+" SET (publish = 'insert, update, delete, truncate');")
	}
	return nil
}

// has reports whether the publication sends a table as wanted.
func (p *Publication) has(want Wanted) bool {
	entry, ok := p.Entries[want.Table.OID]
	if !ok {
		return false
	}
	if want.Columns == nil || entry.Columns == nil {
		return want.Columns == nil && entry.Columns == nil
	}
	var numbers []int16
	for _, name := range want.Columns {
		c, _ := want.Table.Column(name)
		numbers = append(numbers, c.Number)
	}
	slices.Sort(numbers)
	have := slices.Clone(entry.Columns)
	slices.Sort(have)
	return slices.Equal(numbers, have)
}

// Plan plans the changes of the publication. now is nil if it does not exist; grant is then the statement that lets the
// role make it.
func Plan(name string, now *Publication, want []Wanted, mayCreate bool, grant string) (steps []step.Action,
	err error,
) {
	if len(want) == 0 {
		return nil, nil
	}
	if now == nil {
		a := step.Action{
			Step: step.Step{
				What: "publication " + database.Quote(name),
				Undo: []string{"DROP PUBLICATION " + database.Quote(name) + ";"},
			},
			Allowed: mayCreate,
		}
		list, own := make([]string, len(want)), true
		for i, w := range want {
			list[i] = w.SQL()
			a.Allowed = a.Allowed && w.Table.OwnedByUs
			own = own && w.Table.OwnedByUs
			a.Tables = append(a.Tables, w.Table.OID)
			if !w.Table.OwnedByUs {
				a.Why = w.Table.Whose()
			}
		}
		a.SQL = []string{"CREATE PUBLICATION " + database.Quote(name) + " FOR TABLE " + strings.Join(list, ", ") +
			" WITH (publish_via_partition_root = false, publish = 'insert, update, delete, truncate')"}
		if own { // another owner's publication could not be altered later
			a.Grant, a.Why = grant, "the role may not create in the database"
		}
		return []step.Action{a}, nil
	}
	if unfit := now.Unfit(name); unfit != nil {
		return nil, unfit
	}
	alter := "ALTER PUBLICATION " + database.Quote(name)
	for _, w := range want {
		entry, in := now.Entries[w.Table.OID]
		for oid, e := range now.Entries {
			if e.Filtered && (oid == w.Table.OID || slices.Contains(e.Above, w.Table.OID)) {
				return nil, refusal.Coded(code.Publication, fmt.Sprintf(
					"publication %q has a row filter on %s: changes of other rows would go unnoticed", name, e.Name),
					alter+" DROP TABLE "+e.Name+"; then run embedsidecar init")
			}
		}
		if now.has(w) {
			continue
		}
		a := step.Action{
			Step:    step.Step{What: "table " + w.Table.Quoted() + " in publication " + database.Quote(name)},
			Allowed: now.OwnedByUs && w.Table.OwnedByUs, Tables: []uint32{w.Table.OID},
			Why: w.Table.Whose(),
		}
		remove := alter + " DROP TABLE " + Wanted{Table: w.Table}.SQL()
		if in {
			a.SQL = []string{remove}
		}
		a.SQL = append(a.SQL, alter+" ADD TABLE "+w.SQL())
		a.Undo = []string{remove + ";"}
		if in {
			before := Wanted{Table: w.Table}
			for _, c := range w.Table.Columns {
				if slices.Contains(entry.Columns, c.Number) {
					before.Columns = append(before.Columns, c.Name)
				}
			}
			a.Undo = append(a.Undo, alter+" ADD TABLE "+before.SQL()+";")
		}
		steps = append(steps, a)
	}
	return steps, nil
}

// Sources returns the tables of stored pipelines as they are published, each once, without missing ones.
func Sources(ctx context.Context, q database.Querier, stored []resolve.Stored) ([]Wanted, error) {
	var all []Wanted
	var oids []uint32
	for i := range stored {
		oids = append(oids, stored[i].Tables()...)
	}
	for _, oid := range oids {
		if slices.ContainsFunc(all, func(w Wanted) bool { return w.Table.OID == oid }) {
			continue
		}
		t, err := catalog.TableByOID(ctx, q, oid)
		if _, ok := errors.AsType[*refusal.MissingError](err); ok {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Wanted{Table: t})
	}
	return all, nil
}

// Republish recreates a missing publication of a slot, if the role may and no other process does. The slot has lost the
// changes made meanwhile: the caller must recreate the slot and compare every row.
func Republish(ctx context.Context, db database.Beginner, slot string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var name string
	err = tx.QueryRow(ctx, sqlfiles.Query("slot_publication"), pgx.StrictNamedArgs{"slot": slot}).Scan(&name)
	if err != nil {
		return fmt.Errorf("look up publication of slot %q: %w", slot, err)
	}
	now, err := Find(ctx, tx, name)
	if err != nil || now != nil {
		return err
	}
	stored, err := resolve.ReadStoredOf(ctx, tx, slot)
	if err != nil {
		return err
	}
	want, err := Sources(ctx, tx, stored)
	if err != nil {
		return err
	}
	steps, err := Plan(name, nil, want, true, "")
	if err != nil {
		return err
	}
	for _, a := range steps {
		for _, sql := range append([]string{fmt.Sprintf("SET LOCAL lock_timeout = %d", step.Timeout.Milliseconds())},
			a.SQL...) {
			_, err := tx.Exec(ctx, sql)
			if database.HasCode(err, pgerrcode.DuplicateObject, pgerrcode.UniqueViolation) {
				return nil // another process made it
			}
			if database.Denied(err) {
				return &refusal.PermissionError{What: "make " + a.What, Role: tx.Conn().Config().User, SQL: a.SQL, Err: err}
			}
			if err != nil {
				return fmt.Errorf("make %s: %w", a.What, err)
			}
		}
	}
	return wrap.Errorf(tx.Commit(ctx), "make publication %q", name)
}
