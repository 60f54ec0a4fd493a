package workload

import (
	"math/rand/v2"
	"strconv"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Joined returns shapes whose texts have parts from other tables: rows that hang on a row, the row that it hangs on,
// and two levels of these. Triggers change the other tables, by chance, in the transactions that change the shape's
// own.
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
		s := &shapes[i]
		s.Schema, s.Table, s.Dims, s.Counter = "public", s.Name, dims, "hits"
		s.Key, s.Columns, s.IntoTable = []Column{{"id", "bigint"}}, []string{"title"}, s.Name+"_embedding"
		s.newKey = func(r *rand.Rand, rows int) []string { return []string{strconv.Itoa(r.IntN(2 * rows))} }
	}
	return shapes
}

// ownedBy gives a shape the column by which its rows hang on people.
var ownedBy = []string{
	`ALTER TABLE {table} ADD person_id int DEFAULT floor(random() * 20)`, `CREATE INDEX ON {table} (person_id)`,
	`CREATE TRIGGER stir AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION stir_people()`,
	`CREATE TRIGGER move BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION move()`,
}
