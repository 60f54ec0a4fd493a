package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// keyKind is a type that a key may have.
type keyKind struct {
	typ    string
	values []string // as people write them; different as keys
	again  []string // the first values, in another spelling that compares as equal; none where there is none
	before string   // makes the type
	after  string   // changes the table t
}

// keyKinds go beyond those of the workload's shapes, which are integers, text, uuid, timestamptz, numeric, citext and
// more than one.
var keyKinds = []keyKind{
	{typ: `boolean`, values: []string{`f`, `t`}},
	{typ: `bytea`, values: []string{`\x`, `\x00`, `\x7c5c`, `\xff00ff`, `\xdeadbeef`, `\x5c`}},
	{typ: `date`, values: []string{`2024-02-29`, `infinity`, `-infinity`, `0044-03-15 BC`, `99999-01-01`, `1970-01-01`}},
	{typ: `time`, values: []string{`00:00`, `24:00`, `12:34:56.000001`, `01:00`, `02:00`, `03:00`}},
	{typ: `timetz`, values: []string{`12:00+02`, `12:00+03:30`, `00:00-12`, `12:00Z`, `23:59:59.999999+00`, `01:00+01`}},
	{typ: `timestamp`, values: []string{
		`2024-02-29 00:00`, `infinity`, `4713-01-01 00:00 BC`, `2000-01-01 00:00:00.1`,
		`1999-12-31`, `2001-01-01`,
	}},
	{typ: `interval`, values: []string{
		`1 mon`, `-1 day`, `00:00:00.000001`, `1 year 2 mons 3 days 04:05:06`, `0`,
		`-3 mons 2 days`,
	}, again: []string{`30 days`, `-24:00`}},
	{typ: `char(6)`, values: []string{`a`, `ab`, `ab c`, ``, `é|\`, `abcdef`}, again: []string{`a   `}},
	{typ: `"char"`, values: []string{`a`, `|`, `\`, `z`, ` `, `'`}},
	{typ: `name`, values: []string{`a`, `A`, `with space`, `quo"ted`, `é`, ``}},
	{typ: `text COLLATE "C"`, values: []string{`b`, `a`, `B`, `é`, ``, ` `}},
	{typ: `text COLLATE "POSIX"`, values: []string{`b`, `a`, `B`, `é`, ``, ` `}},
	{typ: `varchar(200)`, values: []string{
		"tab\tnew\nline", `{"a","b"}`, `NULL`, `'; DROP TABLE docs; --`, `%_\`,
		strings.Repeat(`x`, 200),
	}},
	{
		typ: `colour`, values: []string{`red`, `dark | blue`, `"`, `NULL`, `Rot`, `grün`},
		before: `CREATE TYPE colour AS ENUM ('red', 'dark | blue', '"', 'NULL', 'Rot', 'grün')`,
	},
	{
		typ: `mail`, values: []string{`a@b`, `A@b`, `c@d|e`, `f@g\`, `h@i`, `j@k`},
		before: `CREATE DOMAIN mail AS text CHECK (value LIKE '%@%')`,
	},
	{
		typ: `even`, values: []string{`0`, `2`, `-4`, `1000000`, `6`, `8`},
		before: `CREATE DOMAIN even AS bigint CHECK (value % 2 = 0)`,
	},
	{
		typ: `inet`, values: []string{`10.0.0.1`, `10.0.0.1/8`, `::1`, `fe80::1/64`, `0.0.0.0`, `255.255.255.255`},
		again: []string{`10.0.0.1/32`},
	},
	{typ: `cidr`, values: []string{`10.0.0.0/8`, `192.168.0.0/16`, `::/0`, `0.0.0.0/0`, `1.2.3.4/32`, `2001:db8::/32`}},
	{
		typ: `macaddr`, values: []string{`08:00:2b:01:02:03`, `00:00:00:00:00:00`, `ff:ff:ff:ff:ff:ff`, `08:00:2b:01:02:04`},
		again: []string{`08-00-2B-01-02-03`},
	},
	{
		typ: `float8`, values: []string{`0`, `0.1`, `NaN`, `Infinity`, `1e-300`, `3.0000000000000004`},
		again: []string{`-0`},
	},
	{typ: `float4`, values: []string{`0`, `0.1`, `NaN`, `-Infinity`, `1e-30`, `16777216`}, again: []string{`-0`}},
	{typ: `money`, values: []string{`0`, `-1.50`, `1000.01`, `2`, `3`, `4`}},
	{typ: `oid`, values: []string{`0`, `4294967295`, `1`, `2`, `3`, `4`}},
	{typ: `pg_lsn`, values: []string{`0/0`, `FFFFFFFF/FFFFFFFF`, `16/B374D848`, `0/1`}, again: []string{`00/00`}},
	{typ: `bit(3)`, values: []string{`000`, `001`, `010`, `111`, `100`, `101`}},
	{typ: `bit varying`, values: []string{``, `0`, `00`, `1`, `10`, `11`}},
	{typ: `integer[]`, values: []string{`{}`, `{1,2}`, `{{1,2},{3,4}}`, `{NULL}`, `{-1}`, `{7}`}},
	{typ: `text[]`, values: []string{`{}`, `{"a|b","c\\"}`, `{NULL,"NULL",""}`, `{"{}"}`, `{a}`, `{b}`}},
	{
		typ: `int4range`, values: []string{`empty`, `[1,5)`, `(,)`, `[7,7]`, `(,3)`, `[9,)`},
		again: []string{`[1,1)`, `[1,4]`},
	},
	{typ: `jsonb`, values: []string{`{"a": [1, null]}`, `"x|y\\"`, `null`, `1.50`, `[]`, `{}`}},
	{
		typ: `pair`, values: []string{`(1,a)`, `(1,"b,c")`, `(2,"""")`, `(2,"|\\\\")`, `(3,)`, `(4,"")`},
		before: `CREATE TYPE pair AS (a int, b text)`,
	},
	{
		typ: `numeric(6,2)`, values: []string{`0`, `1.5`, `-1.5`, `NaN`, `9999.99`, `2`},
		after: `ALTER TABLE %[1]s REPLICA IDENTITY FULL`,
	},
	{typ: `timestamptz`, values: []string{
		`2024-03-31 02:30+01`, `infinity`, `1900-01-01`, `2024-01-01`, `2024-01-02`,
		`2024-01-03`,
	}, after: `ALTER TABLE %[1]s REPLICA IDENTITY USING INDEX %[1]s_pkey`},
	{
		typ: `text COLLATE loose`, values: []string{`a`, `b`, `é`, `c`, `d`, `|`}, again: []string{`A`, `B`, `É`},
		before: `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
	},
}

func TestP1_KeysOfAnyType(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		var (
			specs  []pipeline.Spec
			kinds  []keyKind
			tables []string
		)
		for i, kind := range keyKinds {
			if _, err := db.Pool.Exec(t.Context(), kind.before); err != nil {
				if strings.Contains(err.Error(), "ICU is not supported") {
					continue // so this server has no collation to which different texts are equal
				}
				t.Fatal(err)
			}
			table := fmt.Sprintf("t%d", i)
			db.MustExec(fmt.Sprintf(`CREATE TABLE %s (k %s PRIMARY KEY, body text)`, table, kind.typ))
			if kind.after != "" {
				db.MustExec(fmt.Sprintf(kind.after, table))
			}
			for j, v := range kind.values[:len(kind.values)-1] { // the last is for later
				db.MustExec(fmt.Sprintf(`INSERT INTO %s VALUES ($1::text::%s, $2)`, table, cast(kind.typ)), v,
					fmt.Sprintf("body %d of %s", j, table))
			}
			spec := column(table, "body")
			if (i+major)%2 == 0 {
				spec = intoTable(table, "body")
			}
			specs, kinds, tables = append(specs, spec), append(kinds, kind), append(tables, table)
		}
		r := newRig(t, db, specs...)
		s, _ := r.start()
		r.settle()
		for i, kind := range kinds {
			table, n := tables[i], len(kind.values)
			run := func(sql string, args ...any) {
				t.Helper()
				sql = strings.NewReplacer("{t}", table, "{k}", cast(kind.typ)).Replace(sql)
				if got := db.MustExec(sql, args...); got != 1 {
					t.Errorf("%s: %s of %v met %d rows", kind.typ, sql, args, got)
				}
			}
			run(`UPDATE {t} SET body = 'edited ' || body WHERE k = $1::text::{k}`, kind.values[0])
			for j, v := range kind.again {
				run(`UPDATE {t} SET k = $2::text::{k}, body = body || '.' WHERE k = $1::text::{k}`, kind.values[j], v)
			}
			run(`INSERT INTO {t} VALUES ($1::text::{k}, 'late')`, kind.values[n-1])
			if n < 4 {
				continue
			}
			run(`DELETE FROM {t} WHERE k = $1::text::{k}`, kind.values[n-2])
			// to a place that was free'd
			run(`UPDATE {t} SET k = $1::text::{k} WHERE k = $2::text::{k}`, kind.values[n-2], kind.values[n-3])
			run(`WITH gone AS (DELETE FROM {t} WHERE k = $1::text::{k} RETURNING k) INSERT INTO {t} SELECT $2::text::{k}, 'moved' FROM gone`,
				kind.values[n-1], kind.values[n-3])
		}
		r.settle()
		db.MustExec(`SELECT embedsidecar.backfill(name) FROM embedsidecar.pipeline`) // it asks the ledger for the keys
		r.settle()
		r.verify()
		for i, kind := range kinds {
			rows := r.count(`SELECT count(*) FROM ` + tables[i])
			if n := r.count(vectors(specs[i])); n != rows {
				t.Errorf("%s: %d vectors of %d rows", kind.typ, n, rows)
			}
			if n := r.count(`SELECT count(*) FROM embedsidecar.ledger AS l JOIN embedsidecar.pipeline AS p USING (pipeline_id) WHERE p.name = $1`, tables[i]); n != rows {
				t.Errorf("%s: %d ledger entries of %d rows", kind.typ, n, rows)
			}
		}
		if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
			t.Errorf("%d tasks left", n)
		}
		// Both sides see the same bytes: what changes nothing is known to change nothing.
		r.counted()
		stats := s.Stream()
		made := stats.Made.Load() + stats.Joined.Load()
		for _, table := range tables {
			db.MustExec(`UPDATE ` + table + ` SET body = body`)
		}
		r.counted()
		if now := stats.Made.Load() + stats.Joined.Load(); now != made {
			t.Errorf("updates that change nothing made %d tasks", now-made)
		}
	})
}

// cast returns a type without its collation.
func cast(typ string) string {
	name, _, _ := strings.Cut(typ, " COLLATE ")
	return name
}

func TestP1_KeysWithHostileNames(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		// The names that our own statements use, and those that statements trip over. No row is told from another by one
		// column alone.
		names := []string{"k1", "k2", "place", "row_key", "r", "f", `a"b`, "SELECT", "$1", "é \\ ' ;--", "body", "keep"}
		var columns, key, text []string
		for i, name := range names {
			q := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
			columns = append(columns, q+" text"+[]string{"", ` COLLATE "C"`, ` COLLATE "POSIX"`}[i%3])
			if i%2 == 0 {
				key = append(key, q)
			} else {
				text = append(text, name)
			}
		}
		db.MustExec(`CREATE TABLE "k" (` + strings.Join(columns, ", ") + `, PRIMARY KEY (` + strings.Join(key, ", ") + `))`)
		insert := `INSERT INTO "k" SELECT i % 2, 'two ' || i, i % 3, 'key ' || i, i % 5, 'f', i % 7, 's', i % 11, 'x', i % 13, 'k' FROM generate_series($1::int, $2::int) AS i`
		db.MustExec(insert, 1, 50)
		own := spec("k", text...)
		custom := intoTable("k")
		custom.Name, custom.IntoTable, custom.Text, custom.Filter = "custom", "l",
			`row_key || place || "k1" || "body" || "keep"`, `place <> '1'`
		r := newRig(t, db, own, custom)
		r.start()
		r.settle()
		r.verify()
		db.MustExec(insert, 51, 80)
		db.MustExec(`UPDATE "k" SET row_key = 'new' WHERE "k1" = '0'`)
		db.MustExec(`UPDATE "k" SET place = '1' WHERE place = '2' AND "k1" = '1'`)
		db.MustExec(`DELETE FROM "k" WHERE "r" = '3'`)
		db.MustExec(`SELECT embedsidecar.backfill(name) FROM embedsidecar.pipeline`)
		r.settle()
		r.verify()
		if n, want := r.count(`SELECT count(*) FROM l`), r.count(`SELECT count(*) FROM "k" WHERE place <> '1'`); n != want ||
			want == 0 {
			t.Errorf("%d vectors of %d rows", n, want)
		}
	})
}

func TestP1_KeysOfReplicaIdentityUsingIndex(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, tenant int NOT NULL, code text NOT NULL)`)
		db.MustExec(`CREATE UNIQUE INDEX docs_code ON docs (code DESC, tenant)`)
		db.MustExec(`ALTER TABLE docs REPLICA IDENTITY USING INDEX docs_code`)
		db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i, i % 3, 'c' || i / 3 FROM generate_series(1, 60) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		r.start()
		r.settle()
		r.verify()
		db.MustExec(`UPDATE docs SET body = 'new ' || id WHERE id < 10`)
		db.MustExec(`UPDATE docs SET id = id + 1000 WHERE id BETWEEN 10 AND 20`) // not the key that we know rows by
		db.MustExec(`UPDATE docs SET code = 'moved ' || code WHERE id BETWEEN 21 AND 30`)
		db.MustExec(`DELETE FROM docs WHERE id BETWEEN 31 AND 40`)
		r.settle()
		r.verify()
		if n := r.count(`SELECT count(*) FROM embedsidecar.ledger`); n != 50 {
			t.Errorf("%d ledger entries of 50 rows", n)
		}
	})
}

func TestP5_AKeyTooLongForTheQueue(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (code text PRIMARY KEY, body text)`)
		// It fits into an index of its own, and just not beside the number of a pipeline.
		long := `(SELECT left(string_agg(md5(i::text), ''), $1::int) FROM generate_series(1, 100) AS i)`
		db.MustExec(`INSERT INTO docs VALUES (`+long+`, 'too long')`, 2690)
		db.MustExec(`INSERT INTO docs VALUES (`+long+`, 'long enough')`, pipeline.MaxKey)
		db.MustExec(`INSERT INTO docs SELECT 'code ' || i, 'body ' || i FROM generate_series(1, 20) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		s, _ := r.start()
		r.settle()
		db.MustExec(`UPDATE docs SET body = body || '!'`)
		db.MustExec(`INSERT INTO docs VALUES ('later', 'later')`)
		r.settle()
		if n := r.count(vectors(spec("docs"))); n != 22 {
			t.Errorf("%d vectors, want 22", n)
		}
		r.counted()
		if n := s.Stream().TooLong.Load(); n != 1 {
			t.Errorf("%d changes were counted as left out, want 1", n)
		}
		if found := r.reports()[0]; found.Missing != 1 || found.Covered != 22 || found.Stale != 0 || found.Orphans != 0 {
			t.Errorf("%+v, want the one row to be missing", found)
		} else if len(found.Examples) != 1 || !strings.Contains(found.Examples[0],
			"its key has 2690 bytes, and 2500 is the most") {
			t.Errorf("examples %q do not say why", found.Examples)
		}
		db.MustExec(`DELETE FROM docs WHERE length(code) > $1`, pipeline.MaxKey)
		r.settle()
		r.verify()
	})
}

// TestP5_AJoinedRowOfAKeyTooLongForTheQueue: it leads to a row that is left out, and stops nothing. Nor does a vector
// under such a key that nobody knows.
func TestP5_AJoinedRowOfAKeyTooLongForTheQueue(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE authors (id int PRIMARY KEY, name text)`)
	db.MustExec(`CREATE TABLE docs (code bytea PRIMARY KEY, body text, author_id int)`)
	const long = `(SELECT string_agg(sha256(i::text::bytea), '') FROM generate_series(1, 62) AS i)`
	db.MustExec(`INSERT INTO authors VALUES (1, 'Ann')`)
	db.MustExec(`INSERT INTO docs VALUES ('a', 'short', 1), (` + long + `, 'too long', 1)`)
	spec := intoTable("docs", "body")
	spec.Joins = pipeline.Joins{{
		Schema: "public", Table: "authors", As: "author", On: []pipeline.On{{Column: "id", Of: "author_id"}}, Text: "name",
	}}
	r := newRig(t, db, spec)
	db.MustExec(`GRANT SELECT ON authors TO ` + r.role)
	r.known()
	s, _ := r.start()
	r.settle()
	db.MustExec(`UPDATE authors SET name = 'Bea'`)
	db.MustExec(`INSERT INTO docs VALUES ('b', 'later', 1)`)
	r.settle()
	if n := s.Stream().TooLong.Load(); n != 1 {
		t.Errorf("%d changes were counted as left out, want 1", n)
	}
	db.MustExecSuper(`INSERT INTO docs_embedding (code, generation, text_hash, embedded_at, embedding)
		SELECT sha256('nobody') || ` + long + `, generation, text_hash, embedded_at, embedding FROM docs_embedding LIMIT 1`)
	db.MustExec(`SELECT embedsidecar.backfill('docs')`)
	r.settle()
	if found := r.reports()[0]; found.Missing != 1 || found.Stale != 0 || found.Covered != 2 {
		t.Errorf("%+v, want the one row to be missing", found)
	}
}

// TestP5_ASpellingOfAKeyTooLongForTheQueue: the row is found by its spelling of before, and left out from then on.
func TestP5_ASpellingOfAKeyTooLongForTheQueue(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExecSuper(`CREATE EXTENSION citext`)
		db.MustExec(`CREATE TABLE docs (code citext PRIMARY KEY, body text)`)
		// Small letters of three bytes, and capital ones of two.
		const small = `translate(left(string_agg(md5(i::text), ''), 1961), 'abc', repeat(U&'\2C65', 3))`
		db.MustExec(`INSERT INTO docs SELECT replace(` + small + `, U&'\2C65', U&'\023A'), 'long'
			FROM generate_series(1, 100) AS i`)
		db.MustExec(`INSERT INTO docs VALUES ('a', 'first')`)
		r := newRig(t, db, spec("docs", "body"))
		r.start()
		r.settle()
		r.verify()
		db.MustExec(`UPDATE docs SET code = (SELECT ` + small + ` FROM generate_series(1, 100) AS i), body = 'longer'
			WHERE body = 'long'`)
		if n := r.count(`SELECT max(octet_length(code::text)) FROM docs`); n <= pipeline.MaxKey {
			t.Fatalf("the key has %d bytes, which is not too long", n)
		}
		db.MustExec(`UPDATE docs SET body = 'second' WHERE code = 'a'`)
		r.settle()
		if found := r.reports()[0]; found.Missing != 1 || found.Covered != 1 || found.Stale != 0 || found.Orphans != 0 {
			t.Errorf("%+v, want the one row to be missing", found)
		}
		if n := r.count(`SELECT count(*) FROM embedsidecar.dead_letters`); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// TestP1_ManySpellingsOfOneKey has several tasks of one row in a batch: each names it by a spelling that its key once
// had.
func TestP1_ManySpellingsOfOneKey(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExecSuper(`CREATE EXTENSION citext`)
		db.MustExec(`CREATE TABLE docs (code citext PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO docs VALUES ('abc', 'first'), ('other', 'another')`)
		r := newRig(t, db, spec("docs", "body"))
		r.start()
		r.settle()
		db.MustExec(`UPDATE embedsidecar.installation SET enabled = false`)
		for _, code := range []string{"Abc", "aBc", "abC", "ABC"} {
			db.MustExec(`UPDATE docs SET code = $1::text, body = body || ' ' || $1::text WHERE code = 'abc'`, code)
		}
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := r.count(`SELECT count(*) FROM embedsidecar.task`)
			return n >= 4, fmt.Sprintf("%d tasks", n)
		})
		db.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
		r.settle()
		r.verify()
		if n := r.count(`SELECT count(*) FROM embedsidecar.ledger`); n != 2 {
			t.Errorf("%d ledger entries of 2 rows", n)
		}
	})
}
