package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// operation is a change that users make to a table.
type operation struct {
	name   string
	weight int
	run    func(ctx context.Context, s *step) error
}

var operations = []operation{
	{"insert", 24, insert},
	{"upsert", 6, upsert},
	{"bulk", 3, bulk},
	{"change", 24, change},
	{"change-many", 3, changeMany},
	{"rearrange", 8, rearrange},
	{"there-and-back", 4, thereAndBack},
	{"no-op", 6, noOp},
	{"count", 12, count},
	{"flag", 6, flag},
	{"delete", 12, remove},
	{"rekey", 6, rekey},
	{"swap-keys", 2, swapKeys},
	{"respell", 4, respell},
	{"replace", 5, replace},
	{"clear-vector", 4, clearVector},
	{"delete-many", 1, removeMany},
	{"truncate", 1, truncate},
}

// Operations returns the names of all operations.
func Operations() []string {
	return lists.Map(operations, func(op operation) string { return op.name })
}

func chosen(without []string) []operation {
	return slices.DeleteFunc(slices.Clone(operations),
		func(op operation) bool { return slices.Contains(without, op.name) })
}

// step is a running operation: a table inside a transaction.
type step struct {
	*writer
	tx    pgx.Tx
	shape Shape
}

// params collects the parameters of a statement, all sent as text.
type params []any

func (p *params) add(value any, typeName string) string {
	*p = append(*p, value)
	return fmt.Sprintf("$%d::text::%s", len(*p), typeName)
}

// keyValues is a key as a list of SQL values.
func (s *step) keyValues(p *params, key []string) string {
	values := make([]string, len(key))
	for i, part := range key {
		values[i] = p.add(part, s.shape.Key[i].Type)
	}
	return strings.Join(values, ", ")
}

func (s *step) where(p *params, key []string) string {
	return fmt.Sprintf("(%s) = (%s)", s.shape.keyList(), s.keyValues(p, key))
}

// exec runs a statement in which {table} is the shape's table.
func (s *step) exec(ctx context.Context, sql string, p params) error {
	_, err := s.tx.Exec(ctx, strings.ReplaceAll(sql, "{table}", s.shape.Source()), p...)
	return err
}

func (s *step) newKey() []string { return s.shape.newKey(s.r, s.o.Rows) }

// anyKey returns the key of a row, as this session prints it, or nil if the table is empty.
func (s *step) anyKey(ctx context.Context) ([]string, error) {
	columns := s.shape.eachKey(", ", func(name string) string { return name + "::text" })
	var key []string
	err := s.tx.QueryRow(ctx, fmt.Sprintf(
		"SELECT ARRAY[%s] FROM %s ORDER BY %s OFFSET (SELECT $1::bigint %% greatest(count(*), 1) FROM %s) LIMIT 1",
		columns, s.shape.Source(), s.shape.keyList(), s.shape.Source()), s.r.Int64N(1<<40)).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return key, err
}

// onRow runs a statement on some row: {where} finds it. An empty table gets a row instead.
func (s *step) onRow(ctx context.Context, statement func(p *params, key []string) string) error {
	key, err := s.anyKey(ctx)
	if err != nil {
		return err
	}
	if key == nil {
		return insert(ctx, s)
	}
	var p params
	sql := statement(&p, key)
	return s.exec(ctx, sql+" WHERE "+s.where(&p, key), p)
}

func (s *step) text() any {
	if s.shape.Chunking.On() && s.r.IntN(3) > 0 {
		return article(s.r)
	}
	return text(s.r, s.shape.Long)
}

func (s *step) anyColumn() string { return quote(s.shape.Columns[s.r.IntN(len(s.shape.Columns))]) }

func (s *step) row(p *params, key []string) (columns, values string) {
	columns, values = s.shape.keyList(), s.keyValues(p, key)
	for _, c := range s.shape.Columns {
		columns += ", " + quote(c)
		values += ", " + p.add(s.text(), "text")
	}
	return columns, values
}

func insert(ctx context.Context, s *step) error { return s.insert(ctx, s.newKey()) }

func (s *step) insert(ctx context.Context, key []string) error {
	var p params
	columns, values := s.row(&p, key)
	return s.exec(ctx, fmt.Sprintf("INSERT INTO {table} (%s) VALUES (%s) ON CONFLICT DO NOTHING", columns, values), p)
}

func upsert(ctx context.Context, s *step) error {
	var p params
	columns, values := s.row(&p, s.newKey())
	column := s.anyColumn()
	return s.exec(ctx, fmt.Sprintf("INSERT INTO {table} (%s) VALUES (%s) ON CONFLICT (%s) DO UPDATE SET %s = excluded.%s",
		columns, values, s.shape.keyList(), column, column), p)
}

// bulk loads rows with one statement, up to the table's limit.
func bulk(ctx context.Context, s *step) error { return s.fill(ctx, 20+s.r.IntN(60)) }

func (s *step) fill(ctx context.Context, most int) error {
	var there int
	if err := s.tx.QueryRow(ctx, "SELECT count(*) FROM "+s.shape.Source()).Scan(&there); err != nil {
		return err
	}
	var p params
	var lines []string
	columns := ""
	for range max(1, min(most, s.o.Rows-there)) {
		var values string
		columns, values = s.row(&p, s.newKey())
		lines = append(lines, "("+values+")")
	}
	return s.exec(ctx, fmt.Sprintf("INSERT INTO {table} (%s) VALUES %s ON CONFLICT DO NOTHING", columns,
		strings.Join(lines, ", ")), p)
}

func change(ctx context.Context, s *step) error {
	return s.onRow(ctx, func(p *params, _ []string) string {
		if s.r.IntN(3) > 0 {
			return "UPDATE {table} SET " + s.anyColumn() + " = " + p.add(s.text(), "text")
		}
		sets := make([]string, len(s.shape.Columns))
		for i, c := range s.shape.Columns {
			sets[i] = quote(c) + " = " + p.add(s.text(), "text")
		}
		return "UPDATE {table} SET " + strings.Join(sets, ", ")
	})
}

func changeMany(ctx context.Context, s *step) error {
	var p params
	column := s.anyColumn()
	set := fmt.Sprintf("UPDATE {table} SET %s = left(%s, 1000) || %s", column, column,
		p.add(" "+words[s.r.IntN(len(words))], "text"))
	return s.exec(ctx, set+s.first(5+s.r.IntN(30)), p)
}

// thereAndBack changes a text and changes it back; the sidecar may have read it in between.
func thereAndBack(ctx context.Context, s *step) error {
	key, err := s.anyKey(ctx)
	if err != nil || key == nil {
		return err
	}
	column := s.anyColumn()
	var p params
	var before *string
	err = s.tx.QueryRow(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s", column, s.shape.Source(), s.where(&p, key)),
		p...).Scan(&before)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // deleted in between
	}
	if err != nil {
		return err
	}
	for _, value := range []any{"somewhere else", before} {
		var p params
		set := column + " = " + p.add(value, "text")
		if err := s.exec(ctx, "UPDATE {table} SET "+set+" WHERE "+s.where(&p, key), p); err != nil {
			return err
		}
	}
	return nil
}

func noOp(ctx context.Context, s *step) error {
	return s.onRow(ctx, func(*params, []string) string {
		column := s.anyColumn()
		return "UPDATE {table} SET " + column + " = " + column
	})
}

func count(ctx context.Context, s *step) error {
	return s.onRow(ctx, func(*params, []string) string {
		counter := quote(s.shape.Counter)
		return "UPDATE {table} SET " + counter + " = " + counter + " + 1"
	})
}

func flag(ctx context.Context, s *step) error {
	if s.shape.Flag == "" {
		return count(ctx, s)
	}
	return s.onRow(ctx, func(p *params, _ []string) string {
		return "UPDATE {table} SET " + quote(s.shape.Flag) + " = " + p.add([]any{"true", "false", nil}[s.r.IntN(3)],
			"boolean")
	})
}

func remove(ctx context.Context, s *step) error {
	return s.onRow(ctx, func(*params, []string) string { return "DELETE FROM {table}" })
}

func removeMany(ctx context.Context, s *step) error {
	return s.exec(ctx, "DELETE FROM {table}"+s.first(5+s.r.IntN(50)), nil)
}

// first is a condition for the first rows by key.
func (s *step) first(rows int) string {
	keys := s.shape.keyList()
	return fmt.Sprintf(" WHERE (%s) IN (SELECT %s FROM {table} ORDER BY %s LIMIT %d)", keys, keys, keys, rows)
}

func (s *step) setKey(p *params, key []string) string {
	sets := make([]string, len(key))
	for i, part := range key {
		sets[i] = quote(s.shape.Key[i].Name) + " = " + p.add(part, s.shape.Key[i].Type)
	}
	return "UPDATE {table} SET " + strings.Join(sets, ", ")
}

func rekey(ctx context.Context, s *step) error {
	return s.onRow(ctx, func(p *params, _ []string) string {
		sql := s.setKey(p, s.newKey())
		if s.r.IntN(3) == 0 {
			sql += ", " + s.anyColumn() + " = " + p.add(s.text(), "text")
		}
		return sql
	})
}

// swapKeys lets two rows change places by way of a third key.
func swapKeys(ctx context.Context, s *step) error {
	a, err := s.anyKey(ctx)
	if err != nil || a == nil {
		return err
	}
	b, err := s.anyKey(ctx)
	if err != nil || b == nil || slices.Equal(a, b) {
		return err
	}
	third := s.newKey()
	for _, move := range [][2][]string{{a, third}, {b, a}, {third, b}} {
		var p params
		sql := s.setKey(&p, move[1])
		if err := s.exec(ctx, sql+" WHERE "+s.where(&p, move[0]), p); err != nil {
			return err
		}
	}
	return nil
}

// respell changes how a key is printed but not which key it is.
func respell(ctx context.Context, s *step) error {
	if s.shape.respell == nil {
		return rekey(ctx, s)
	}
	return s.onRow(ctx, func(p *params, key []string) string { return s.setKey(p, s.shape.respell(key)) })
}

// replace deletes a row and inserts another one with the same key.
func replace(ctx context.Context, s *step) error {
	key, err := s.anyKey(ctx)
	if err != nil || key == nil {
		return err
	}
	var p params
	if err := s.exec(ctx, "DELETE FROM {table} WHERE "+s.where(&p, key), p); err != nil {
		return err
	}
	return s.insert(ctx, key)
}

// clearVector deletes a vector to request a new one. That has no effect in an embedding table, which is not published.
func clearVector(ctx context.Context, s *step) error {
	if s.shape.IntoColumn == "" {
		return noOp(ctx, s)
	}
	return s.onRow(ctx, func(*params, []string) string {
		return "UPDATE {table} SET " + quote(s.shape.IntoColumn) + " = NULL"
	})
}

// truncate truncates a table and usually reloads it in the same transaction.
func truncate(ctx context.Context, s *step) error {
	if err := s.exec(ctx, "TRUNCATE {table}", nil); err != nil {
		return err
	}
	if s.r.IntN(4) == 0 {
		return nil
	}
	return s.fill(ctx, 40)
}

// Joined returns shapes whose texts have parts from other tables: child rows, the parent row, and two levels of these.
// Triggers randomly change the other tables, in the transactions that change the shape's own.
func Joined(dims int) []Shape {
	on := func(column, of string) []pipeline.On { return []pipeline.On{{Column: column, Of: of}} }
	person := pipeline.Join{Schema: "public", Table: "people", As: "person", On: on("id", "person_id"), Text: "name"}
	placed := person
	placed.Text = "concat_ws(' in ', name, place)"
	placed.Joins = pipeline.Joins{{
		Schema: "public", Table: "places", As: "place", On: on("id", "place_id"), Text: "name",
	}}
	shapes := []Shape{
		{
			Name: "listed", Joins: pipeline.Joins{{
				Schema: "public", Table: "labels", As: "labels", On: on("row_id", "id"),
				Text: "string_agg(name, ', ' ORDER BY name, id)",
			}},
			joined: `(SELECT string_agg(l.name, ', ' ORDER BY l.name, l.id) FROM labels AS l WHERE l.row_id = listed.id)`,
			after: []string{
				`CREATE TABLE labels (id bigserial PRIMARY KEY, row_id bigint, name text)`,
				`CREATE INDEX ON labels (row_id)`, `ALTER TABLE labels REPLICA IDENTITY FULL`,
				`CREATE FUNCTION stir_labels() RETURNS trigger LANGUAGE plpgsql AS $$
				DECLARE chance float := random(); one tid := (SELECT ctid FROM labels ORDER BY random() LIMIT 1
					FOR UPDATE SKIP LOCKED); other bigint := (SELECT id FROM listed ORDER BY random() LIMIT 1);
				BEGIN
					CASE
						WHEN chance < 0.3 THEN
							INSERT INTO labels (row_id, name) VALUES (coalesce(NEW.id, other), 'label ' || random());
						WHEN chance < 0.5 THEN UPDATE labels SET name = 'edited ' || random() WHERE ctid = one;
						WHEN chance < 0.7 THEN UPDATE labels SET row_id = other WHERE ctid = one;
						WHEN chance < 0.8 THEN DELETE FROM labels WHERE ctid = one;
						ELSE NULL; END CASE;
					RETURN NULL;
				END $$`,
				`CREATE TRIGGER stir AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION stir_labels()`,
			},
		},
		{
			Name: "owned", Joins: pipeline.Joins{person},
			joined: `(SELECT p.name FROM people AS p WHERE p.id = owned.person_id)`,
			after: append([]string{
				`CREATE TABLE places (id int PRIMARY KEY, name text)`,
				`CREATE TABLE people (id int PRIMARY KEY, name text, place_id int)`, `CREATE INDEX ON people (place_id)`,
				`INSERT INTO places SELECT i, 'place ' || i FROM generate_series(1, 3) AS i`,
				`INSERT INTO people SELECT i, 'person ' || i, i % 3 + 1 FROM generate_series(1, 20) AS i`,
				`CREATE FUNCTION stir_people() RETURNS trigger LANGUAGE plpgsql AS $$
				DECLARE chance float := random(); one tid := (SELECT ctid FROM people ORDER BY random() LIMIT 1
					FOR UPDATE SKIP LOCKED);
				BEGIN
					CASE WHEN chance < 0.05 THEN UPDATE people SET name = 'renamed ' || random() WHERE ctid = one;
						WHEN chance < 0.08 THEN UPDATE people SET place_id = nullif(floor(random() * 4), 0) WHERE ctid = one;
						WHEN chance < 0.1 THEN DELETE FROM people WHERE ctid = one;
						WHEN chance < 0.13 THEN INSERT INTO people VALUES (floor(random() * 20), 'new ' || random(), 1)
							ON CONFLICT DO NOTHING;
						WHEN chance < 0.14 THEN UPDATE places SET name = 'place ' || random() WHERE ctid = (SELECT ctid FROM places
							ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED);
						ELSE NULL; END CASE;
					RETURN NULL;
				END $$`,
				`CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF random() < 0.2 THEN NEW.person_id := nullif(floor(random() * 20), 0); END IF; RETURN NEW; END $$`,
			}, ownedBy...),
		},
		{
			Name: "placed", Joins: pipeline.Joins{placed},
			joined: `(SELECT concat_ws(' in ', p.name, l.name) FROM people AS p LEFT JOIN places AS l ON l.id = p.place_id
				WHERE p.id = placed.person_id)`,
			after: ownedBy,
		},
	}
	for i := range shapes {
		shapes[i].Columns, shapes[i].IntoTable = []string{"title"}, shapes[i].Name+"_embedding"
	}
	return usual(shapes, dims)
}

// ownedBy gives a shape a foreign key to people.
var ownedBy = []string{
	`ALTER TABLE {table} ADD person_id int DEFAULT floor(random() * 20)`, `CREATE INDEX ON {table} (person_id)`,
	`CREATE TRIGGER stir AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION stir_people()`,
	`CREATE TRIGGER move BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION move()`,
}
