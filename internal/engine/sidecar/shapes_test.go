package sidecar_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// unusualTable is a table as nobody would make it on purpose, and as everybody meets one day.
type unusualTable struct {
	name, make string
	since      int // major version
	before     []string
	while      []string
	rows       int // with a vector, at the end
	columns    []string
	text       string
}

var unusualTables = []unusualTable{
	{
		name: "temporal", since: 18,
		make:   `CREATE TABLE temporal (room int, during daterange, body text, PRIMARY KEY (room, during WITHOUT OVERLAPS))`,
		before: []string{`INSERT INTO temporal VALUES (1, '[2024-01-01,2024-02-01)', 'first'), (1, '[2024-02-01,2024-03-01)', 'second'), (2, '[2024-01-15,)', 'open')`},
		while: []string{
			`UPDATE temporal SET body = 'edited' WHERE during @> '2024-01-10'::date AND room = 1`,
			`UPDATE temporal SET during = '[2024-02-10,2024-02-20)' WHERE during @> '2024-02-10'::date AND room = 1`,
			`INSERT INTO temporal VALUES (1, '(,2020-01-01)', 'long ago')`, `DELETE FROM temporal WHERE room = 2`,
		},
		rows: 3,
	},
	{
		name: "including", make: `CREATE TABLE including (id int, body text, note text, UNIQUE (body, id), PRIMARY KEY (id) INCLUDE (note))`,
		before: []string{`INSERT INTO including SELECT i, 'body ' || i, 'note' FROM generate_series(1, 20) AS i`},
		while:  []string{`UPDATE including SET note = 'other'`, `UPDATE including SET id = id + 100 WHERE id < 6`},
		rows:   20,
	},
	{
		name: "reordered", // partitions with columns in another order, and dropped ones
		make: `CREATE TABLE reordered (gone int, id int, part int, body text, PRIMARY KEY (part,
			id)) PARTITION BY LIST (part);
			ALTER TABLE reordered DROP COLUMN gone;
			CREATE TABLE reordered_1 (body text, junk int, part int NOT NULL, id int NOT NULL);
			ALTER TABLE reordered_1 DROP COLUMN junk;
			ALTER TABLE reordered ATTACH PARTITION reordered_1 FOR VALUES IN (1);
			CREATE TABLE reordered_2 PARTITION OF reordered FOR VALUES IN (2) PARTITION BY RANGE (id);
			CREATE TABLE reordered_2a PARTITION OF reordered_2 FOR VALUES FROM (0) TO (10);
			CREATE TABLE reordered_2b PARTITION OF reordered_2 DEFAULT;
			CREATE TABLE reordered_0 PARTITION OF reordered DEFAULT`,
		before: []string{`INSERT INTO reordered (id, part, body) SELECT i, i % 4, 'body ' || i FROM generate_series(1, 40) AS i`},
		while: []string{
			`UPDATE reordered SET part = 1, body = body || '!' WHERE part = 2 AND id < 10`,
			`UPDATE reordered SET part = 2 WHERE part = 3`,
			`UPDATE reordered SET id = id + 5 WHERE part = 2 AND id = 3`, `DELETE FROM ONLY reordered_1 WHERE id = 5`,
			`TRUNCATE reordered_0`,
			`INSERT INTO reordered_2b (id, part, body) VALUES (1000, 2, 'straight into a leaf')`,
		},
		rows: 30,
	},
	{
		name: "documents", columns: []string{"a", "b", "c", "d", "e"},
		make: `CREATE TYPE person AS (name text, born date);
			CREATE TABLE documents (id uuid PRIMARY KEY, a json, b tsvector, c person, d person[], e bytea, f point)`,
		before: []string{`INSERT INTO documents SELECT gen_random_uuid(), '{"a": 1}', 'fat:2 cat:3', ROW('Ann', '2000-01-01')::person, ARRAY[ROW('B', NULL)::person], '\x00ff', '(1,2)' FROM generate_series(1, 10)`},
		while: []string{
			`UPDATE documents SET a = '{ "a" : 1 }'`, `UPDATE documents SET b = NULL, d = '{}'`,
			`UPDATE documents SET f = '(2,1)'`,
			`UPDATE documents SET c.name = 'Zoe', e = '\x'`,
		},
		rows: 10,
	},
	{
		name: "parent", // inheritance that is no partitioning: the child's rows are not the parent's
		make: `CREATE TABLE parent (id int PRIMARY KEY, body text); CREATE TABLE child (extra text, PRIMARY KEY (id)) INHERITS (parent)`,
		before: []string{
			`INSERT INTO parent SELECT i, 'parent ' || i FROM generate_series(1, 5) AS i`,
			`INSERT INTO child SELECT i, 'child ' || i, 'x' FROM generate_series(1, 5) AS i`,
		},
		while: []string{
			`UPDATE parent SET body = body || '.'`, `DELETE FROM parent WHERE id = 1`,
			`INSERT INTO child VALUES (9, 'nine', '')`,
		},
		rows: 4,
	},
	{
		name: "toasted", // values that an UPDATE does not touch are not in the WAL
		make: `CREATE TABLE toasted (id int PRIMARY KEY, body text, big text, hits int DEFAULT 0); ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL`, columns: []string{"body", "big"},
		before: []string{`INSERT INTO toasted SELECT i, 'body ' || i, repeat(i::text, 5000) FROM generate_series(1, 10) AS i`},
		while: []string{
			`UPDATE toasted SET hits = hits + 1`, `UPDATE toasted SET body = body || '!' WHERE id < 5`,
			`UPDATE toasted SET big = repeat('z', 9000) WHERE id = 7`,
			`UPDATE toasted SET id = id + 50 WHERE id > 8`,
		},
		rows: 10,
	},
	{
		name: "guarded", // rules and triggers that think they know better
		make: `CREATE TABLE guarded (id int PRIMARY KEY, body text, at timestamptz DEFAULT now());
			CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.at := clock_timestamp();
			RETURN NEW; END $$;
			CREATE TRIGGER touch BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION touch();
			CREATE TRIGGER same BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
			CREATE RULE keep AS ON DELETE TO guarded WHERE old.id = 3 DO INSTEAD NOTHING`,
		before: []string{`INSERT INTO guarded SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`},
		while:  []string{`DELETE FROM guarded WHERE id IN (3, 4)`, `UPDATE guarded SET body = upper(body)`},
		rows:   4,
	},
	{
		name: "wide", text: `left("c1500", 9) || "c2"`,
		make:   wideTable(1550),
		before: []string{`INSERT INTO wide (id, c2, c1500) SELECT i, 'two', 'fifteen' || i FROM generate_series(1, 5) AS i`},
		while: []string{
			`UPDATE wide SET c1500 = 'changed' WHERE id = 2`, `UPDATE wide SET c7 = 'seven'`,
			`UPDATE wide SET c2 = NULL WHERE id = 4`,
		},
		rows: 4,
	},
}

// wideTable makes a table with as many columns of text beside its key.
func wideTable(columns int) string {
	sql := `CREATE TABLE wide (id int PRIMARY KEY`
	for i := 1; i <= columns; i++ {
		sql += fmt.Sprintf(`, c%d text`, i)
	}
	return sql + `)`
}

// create makes the table with its rows, and says which pipeline it has.
func (u *unusualTable) create(db *testenv.Database, spec func(string, ...string) pipeline.Spec) pipeline.Spec {
	db.MustExec(u.make)
	for _, sql := range u.before {
		db.MustExec(sql)
	}
	columns := u.columns
	if columns == nil {
		columns = []string{"body"}
	}
	s := spec(u.name, columns...)
	if u.text != "" {
		s.Columns, s.Text = nil, u.text
	}
	return s
}

// TestP1_UnusualTables: each table gets rows before the sidecar starts, and statements while it runs.
func TestP1_UnusualTables(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		tables := slices.DeleteFunc(slices.Clone(unusualTables), func(u unusualTable) bool { return major < u.since })
		bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
			t.Helper()
			db := testenv.DB(t, testenv.Major(major))
			if major >= 18 {
				db.MustExecSuper(`CREATE EXTENSION btree_gist`)
			}
			var specs []pipeline.Spec
			for _, table := range tables {
				specs = append(specs, table.create(db, spec))
			}
			r := newRig(t, db, specs...)
			r.start()
			r.settle()
			for _, table := range tables {
				for _, sql := range table.while {
					db.MustExec(sql)
				}
			}
			r.settle()
			r.verify()
			for i, table := range tables {
				if n := r.count(vectors(specs[i])); n != int64(table.rows) {
					t.Errorf("%s: %d vectors, want %d", table.name, n, table.rows)
				}
			}
			if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
				t.Errorf("%d tasks left: %v", n, testenv.Values[string](db,
					`SELECT concat_ws(' ', pipeline_id, row_key, state, error_code, error_message) FROM embedsidecar.task`))
			}
		})
	})
}
