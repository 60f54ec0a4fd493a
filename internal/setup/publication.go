package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// publication is what the catalogue says of ours.
type publication struct {
	OID       uint32
	Owner     string
	OwnedByUs bool
	AllTables bool
	ViaRoot   bool
	AllKinds  bool // insert, update, delete and truncate are published
	entries   map[uint32]publishedTable
}

// publishedTable is a table's entry in a publication.
type publishedTable struct {
	Columns  []int16  // of the column list; nil: all
	Filtered bool     // a row filter hides changes
	Name     string   // quoted
	Above    []uint32 // the partitioned tables that it is a partition of
}

// publishedAs is how a table shall be in the publication.
type publishedAs struct {
	table   *table
	columns []string // nil: all
}

func (p publishedAs) sql() string {
	only := "ONLY "
	if p.table.Kind == "p" {
		only = ""
	}
	if p.columns == nil {
		return only + p.table.quoted()
	}
	return only + p.table.quoted() + " (" + database.QuoteAll(p.columns) + ")"
}

// version15 is the first server with column lists and row filters in publications.
const version15 = 150000

func findPublication(ctx context.Context, q database.Querier, name string, version int) (*publication, error) {
	var p publication
	err := q.QueryRow(ctx, `SELECT oid, pg_get_userbyid(pubowner)::text, pg_has_role(pubowner, 'USAGE'), puballtables,
		pubviaroot,
		pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = $1`, name).
		Scan(&p.OID, &p.Owner, &p.OwnedByUs, &p.AllTables, &p.ViaRoot, &p.AllKinds)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nil says that there is none
	}
	if err != nil {
		return nil, fmt.Errorf("look up publication %q: %w", name, err)
	}
	details := "prattrs::int2[], prqual IS NOT NULL"
	if version < version15 {
		details = "NULL::int2[], false"
	}
	rows, err := q.Query(ctx, "SELECT prrelid, "+details+`, format('%I.%I', n.nspname, c.relname),
		ARRAY(SELECT relid::oid FROM pg_partition_ancestors(prrelid) WHERE relid <> prrelid)
		FROM pg_publication_rel JOIN pg_class c ON c.oid = prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE prpubid = $1`, p.OID)
	if err != nil {
		return nil, fmt.Errorf("look up tables of publication %q: %w", name, err)
	}
	p.entries = map[uint32]publishedTable{}
	var oid uint32
	var entry publishedTable
	_, err = pgx.ForEachRow(rows, []any{&oid, &entry.Columns, &entry.Filtered, &entry.Name, &entry.Above}, func() error {
		p.entries[oid] = entry
		entry.Columns, entry.Above = nil, nil
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up tables of publication %q: %w", name, err)
	}
	return &p, nil
}

// unfit returns why a publication that is there cannot be ours, or "".
func (p *publication) unfit(name string) (problem string, hint []string) {
	switch {
	case p.AllTables:
		return fmt.Sprintf("publication %q publishes all tables: what we write would come back as changes", name),
			[]string{"choose another name for the publication"}
	case p.ViaRoot:
		return fmt.Sprintf("publication %q has publish_via_partition_root: the TRUNCATE of a partition would go unnoticed",
				name),
			[]string{"ALTER PUBLICATION " + database.Quote(name) + " SET (publish_via_partition_root = false);"}
	case !p.AllKinds:
		return fmt.Sprintf("publication %q leaves out some kinds of changes", name),
			[]string{"ALTER PUBLICATION " + database.Quote(name) + " SET (publish = 'insert, update, delete, truncate');"}
	}
	return "", nil
}

// has reports whether the publication sends a table as it shall.
func (p *publication) has(want publishedAs) bool {
	entry, ok := p.entries[want.table.OID]
	if !ok {
		return false
	}
	if want.columns == nil || entry.Columns == nil {
		return want.columns == nil && entry.Columns == nil
	}
	var numbers []int16
	for _, name := range want.columns {
		c, _ := want.table.column(name)
		numbers = append(numbers, c.Number)
	}
	slices.Sort(numbers)
	have := slices.Clone(entry.Columns)
	slices.Sort(have)
	return slices.Equal(numbers, have)
}

// publish plans what makes the publication send the tables. now is nil when there is none; then grant lets the role
// make it.
func publish(name string, now *publication, want []publishedAs, mayCreate bool, grant string) (steps []action,
	err error,
) {
	if len(want) == 0 {
		return nil, nil
	}
	if now == nil {
		a := action{
			Step:    Step{What: "publication " + database.Quote(name), Undo: []string{"DROP PUBLICATION " + database.Quote(name) + ";"}},
			allowed: mayCreate,
		}
		list, own := make([]string, len(want)), true
		for i, w := range want {
			list[i] = w.sql()
			a.allowed = a.allowed && w.table.OwnedByUs
			own = own && w.table.OwnedByUs
			a.tables = append(a.tables, w.table.OID)
		}
		a.SQL = []string{"CREATE PUBLICATION " + database.Quote(name) + " FOR TABLE " + strings.Join(list, ", ") +
			" WITH (publish_via_partition_root = false, publish = 'insert, update, delete, truncate')"}
		if own { // one that somebody else made could not be altered later
			a.grant = grant
		}
		return []action{a}, nil
	}
	if problem, hint := now.unfit(name); problem != "" {
		return nil, &refusal.ConfigError{Problem: problem, Hint: hint}
	}
	alter := "ALTER PUBLICATION " + database.Quote(name)
	for _, w := range want {
		entry, in := now.entries[w.table.OID]
		for oid, e := range now.entries {
			if e.Filtered && (oid == w.table.OID || slices.Contains(e.Above, w.table.OID)) {
				return nil, &refusal.ConfigError{
					Problem: fmt.Sprintf("publication %q has a row filter on %s: changes of other rows would go unnoticed", name,
						e.Name),
					Hint: []string{alter + " DROP TABLE " + e.Name + "; then run embedsidecar init"},
				}
			}
		}
		if now.has(w) {
			continue
		}
		a := action{
			Step:    Step{What: "table " + w.table.quoted() + " in publication " + database.Quote(name)},
			allowed: now.OwnedByUs && w.table.OwnedByUs, tables: []uint32{w.table.OID},
		}
		remove := alter + " DROP TABLE " + publishedAs{table: w.table}.sql()
		if in {
			a.SQL = []string{remove}
		}
		a.SQL = append(a.SQL, alter+" ADD TABLE "+w.sql())
		a.Undo = []string{remove + ";"}
		if in {
			before := publishedAs{table: w.table}
			for _, c := range w.table.Columns {
				if slices.Contains(entry.Columns, c.Number) {
					before.columns = append(before.columns, c.Name)
				}
			}
			a.Undo = append(a.Undo, alter+" ADD TABLE "+before.sql()+";")
		}
		steps = append(steps, a)
	}
	return steps, nil
}

// sources returns the tables of stored pipelines as they are published, each once; those that are gone are left out.
func sources(ctx context.Context, q database.Querier, stored []storedPipeline) ([]publishedAs, error) {
	var all []publishedAs
	for _, s := range stored {
		if slices.ContainsFunc(all, func(w publishedAs) bool { return w.table.OID == s.TableOID }) {
			continue
		}
		t, err := tableByOID(ctx, q, s.TableOID)
		if _, ok := errors.AsType[*refusal.MissingError](err); ok {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, publishedAs{table: t})
	}
	return all, nil
}

// Republish makes a missing publication of a slot again, for a role that may. Changes made while it was missing are
// lost to the slot: the caller must make the slot anew and compare every row.
func Republish(ctx context.Context, db database.DB, slot string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var name string
	var version int
	err = tx.QueryRow(ctx, "SELECT publication::text, current_setting('server_version_num')::int FROM embedsidecar.lsn_checkpoint WHERE slot_name = $1", slot).Scan(&name, &version)
	if err != nil {
		return fmt.Errorf("look up publication of slot %q: %w", slot, err)
	}
	now, err := findPublication(ctx, tx, name, version)
	if err != nil || now != nil {
		return err
	}
	stored, err := storedPipelines(ctx, tx, "WHERE p.slot_name = $1", slot)
	if err != nil {
		return err
	}
	want, err := sources(ctx, tx, stored)
	if err != nil {
		return err
	}
	steps, err := publish(name, nil, want, true, "")
	if err != nil {
		return err
	}
	for _, a := range steps {
		for _, sql := range append([]string{fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds())},
			a.SQL...) {
			_, err := tx.Exec(ctx, sql)
			if database.Denied(err) {
				return &refusal.PermissionError{What: "make " + a.What, Role: tx.Conn().Config().User, SQL: a.SQL, Err: err}
			}
			if err != nil {
				return fmt.Errorf("make %s: %w", a.What, err)
			}
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("make publication %q: %w", name, err)
	}
	return nil
}
