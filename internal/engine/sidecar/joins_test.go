package sidecar_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// library is a schema in which texts hang together: tags on books, books on authors, authors on publishers.
const library = `
	CREATE TABLE publishers (id int PRIMARY KEY, name text);
	CREATE TABLE authors (id int PRIMARY KEY, name text, publisher_id int);
	CREATE INDEX ON authors (publisher_id);
	CREATE TABLE books (id bigint PRIMARY KEY, title text, author_id int, hits int NOT NULL DEFAULT 0);
	CREATE INDEX ON books (author_id);
	ALTER TABLE books REPLICA IDENTITY FULL;
	CREATE TABLE tags (id int PRIMARY KEY, book_id int, name text);
	CREATE INDEX ON tags (book_id);
	ALTER TABLE tags REPLICA IDENTITY FULL`

func on(column, of string) []pipeline.On { return []pipeline.On{{Column: column, Of: of}} }

// joinedShape is a pipeline with joins, and SQL of its own for the text that each row is to have: keys and texts.
type joinedShape struct {
	name   string
	spec   pipeline.Spec
	texts  string
	stored string
}

// joinedShapes are children of a row, its parent, two levels of parents, and children of children.
func joinedShapes() []joinedShape {
	tags := pipeline.Join{
		Schema: "public", Table: "tags", As: "tag_names", On: on("book_id", "id"),
		Text: "string_agg(name, ', ' ORDER BY name, id)",
	}
	author := pipeline.Join{Schema: "public", Table: "authors", As: "author", On: on("id", "author_id"), Text: "name"}
	published := author
	published.Text = "concat_ws(' of ', name, publishers)"
	published.Joins = pipeline.Joins{{
		Schema: "public", Table: "publishers", As: "publishers", On: on("id", "publisher_id"), Text: "name",
	}}
	works := pipeline.Join{
		Schema: "public", Table: "books", As: "works", On: on("author_id", "id"),
		Text: "string_agg(concat_ws(': ', title, tag_names), '; ' ORDER BY books.id)", Joins: pipeline.Joins{tags},
	}
	works.Text = strings.ReplaceAll(works.Text, "books.", "works.")
	into := func(table, name string) pipeline.Spec {
		return pipeline.Spec{Name: name, Schema: "public", Table: table, IntoTable: name + "_embedding"}
	}
	children := into("books", "children")
	children.Columns, children.Joins = []string{"title"}, pipeline.Joins{tags}
	parent := pipeline.Spec{Name: "parent", Schema: "public", Table: "books", IntoColumn: "embedding"}
	parent.Text, parent.Joins = "title || coalesce(' by ' || author, '')", pipeline.Joins{author}
	levels := into("books", "levels")
	levels.Text, levels.Filter = "concat_ws(' ', r.title, author, upper(author))", "title <> 'hidden'"
	levels.Joins = pipeline.Joins{published}
	grandchildren := into("authors", "grandchildren")
	grandchildren.Columns, grandchildren.Joins = []string{"name"}, pipeline.Joins{works}
	return []joinedShape{
		{"children", children, `SELECT b.id, concat_ws(E'\n\n', nullif(b.title, ''), nullif(string_agg(t.name, ', '
			ORDER BY t.name, t.id), '')) FROM books b LEFT JOIN tags t ON t.book_id = b.id GROUP BY b.id`, ""},
		{"parent", parent, `SELECT b.id, b.title || coalesce(' by ' || a.name, '')
			FROM books b LEFT JOIN authors a ON a.id = b.author_id`, "SELECT id, embedding FROM books"},
		{"levels", levels, `SELECT b.id, CASE WHEN b.title <> 'hidden' THEN
				concat_ws(' ', b.title, x.author, upper(x.author)) END FROM books b
			LEFT JOIN LATERAL (SELECT concat_ws(' of ', a.name, p.name) FROM authors a
				LEFT JOIN publishers p ON p.id = a.publisher_id WHERE a.id = b.author_id) AS x (author) ON true`, ""},
		{"grandchildren", grandchildren, `SELECT a.id, concat_ws(E'\n\n', nullif(a.name, ''), nullif(string_agg(w.work, '; '
			ORDER BY w.id), '')) FROM authors a LEFT JOIN (SELECT b.author_id, b.id, concat_ws(': ', b.title, string_agg(t.name,
				', ' ORDER BY t.name, t.id)) AS work FROM books b LEFT JOIN tags t ON t.book_id = b.id GROUP BY b.id) AS w
			ON w.author_id = a.id GROUP BY a.id`, ""},
	}
}

// agrees holds stored vectors against the texts that a query of its own says rows have.
func (s joinedShape) agrees(r *rig) {
	r.t.Helper()
	stored := s.stored
	if stored == "" {
		stored = "SELECT id, embedding FROM " + s.spec.IntoTable
	}
	type row struct {
		ID   int64
		Text *string
		Have *string
	}
	for _, found := range testenv.Rows[row](r.db, "SELECT coalesce(w.id, v.id)::bigint AS id, w.text,"+
		" v.embedding::text AS have FROM ("+s.texts+") AS w (id, text)"+
		" FULL JOIN ("+stored+") AS v (id, embedding) ON v.id = w.id") {
		var want string
		if found.Text != nil && !vector.Empty(*found.Text) {
			list := make([]string, dims)
			for i, x := range vector.Of(*found.Text, dims) {
				list[i] = fmt.Sprint(x)
			}
			want = "[" + strings.Join(list, ",") + "]"
		}
		have := ""
		if found.Have != nil {
			have = *found.Have
		}
		if have != want {
			text := "no text"
			if found.Text != nil {
				text = *found.Text
			}
			r.t.Errorf("%s: row %d (%q) has the vector %s, want %s", s.name, found.ID, text, have, want)
		}
	}
}

// libraryChange returns a random statement over the library.
func libraryChange(rnd *rand.Rand, n int) string {
	id := func(most int) string {
		if rnd.IntN(8) == 0 {
			return "NULL"
		}
		return fmt.Sprint(rnd.IntN(most))
	}
	book, author, publisher, tag := rnd.IntN(12), rnd.IntN(5), rnd.IntN(3), rnd.IntN(20)
	return slices.Concat([]string{
		fmt.Sprintf(`INSERT INTO books VALUES (%d, 'title %d', %s) ON CONFLICT (id) DO UPDATE SET title = excluded.title,
			author_id = excluded.author_id`, book, n, id(5)),
		fmt.Sprintf(`INSERT INTO tags VALUES (%d, %s, 'tag %d') ON CONFLICT (id) DO UPDATE SET name = excluded.name`,
			tag, id(12), n),
		fmt.Sprintf(`UPDATE tags SET book_id = %s WHERE id = %d`, id(12), tag),
		fmt.Sprintf(`UPDATE tags SET id = id + 1000 * (random() * 1000)::int, name = 'again %d' WHERE id = %d`, n, tag),
		fmt.Sprintf(`DELETE FROM tags WHERE id = %d OR id > 1000`, tag),
		fmt.Sprintf(`UPDATE books SET author_id = %s WHERE id = %d`, id(5), book),
		fmt.Sprintf(`UPDATE books SET hits = hits + 1 WHERE id %% 3 = %d`, n%3),
		fmt.Sprintf(`UPDATE books SET title = 'hidden' WHERE id = %d`, book),
		fmt.Sprintf(`DELETE FROM books WHERE id = %d`, book),
		fmt.Sprintf(`INSERT INTO authors VALUES (%d, 'author %d', %s)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name`, author, n, id(3)),
		fmt.Sprintf(`UPDATE authors SET publisher_id = %s WHERE id = %d`, id(3), author),
		fmt.Sprintf(`UPDATE authors SET name = 'renamed %d' WHERE id = %d`, n, author),
		fmt.Sprintf(`UPDATE authors SET id = %d WHERE id = %d AND NOT EXISTS (SELECT FROM authors WHERE id = %[1]d)`,
			rnd.IntN(5), author),
		fmt.Sprintf(`DELETE FROM authors WHERE id = %d`, author),
		fmt.Sprintf(`INSERT INTO publishers VALUES (%d, 'publisher %d') ON CONFLICT (id)
			DO UPDATE SET name = excluded.name`,
			publisher, n),
		fmt.Sprintf(`UPDATE publishers SET name = NULL WHERE id = %d`, publisher),
		fmt.Sprintf(`DELETE FROM publishers WHERE id = %d`, publisher),
	}, map[bool][]string{true: {`TRUNCATE tags`, `TRUNCATE publishers`}}[n%25 == 0])[rnd.IntN(17+2*b2i(n%25 == 0))]
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestP1_JoinedTexts runs random histories over tables that texts are made of, and stops and starts the sidecar in
// their middle.
func TestP1_JoinedTexts(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "EMBEDSIDECAR_STEPS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		for name, direct := range map[string]bool{"queued": false, "direct": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t, testenv.Major(major))
				db.MustExec(library)
				rnd := rand.New(rand.NewPCG(uint64(major), 7))
				for n := range 60 {
					db.MustExec(libraryChange(rnd, n+1))
				}
				shapes := joinedShapes()
				specs := make([]pipeline.Spec, len(shapes))
				for i, s := range shapes {
					specs[i] = s.spec
				}
				r := newRig(t, db, specs...)
				r.options = func(o *sidecar.Options) { o.NoDirect = !direct }
				_, stop := r.start()
				check := func() {
					t.Helper()
					r.settle()
					r.verify()
					for _, s := range shapes {
						s.agrees(r)
					}
				}
				check()
				for round := range 8 {
					for n := range 25 {
						statements := make([]string, 1+rnd.IntN(3))
						for i := range statements {
							statements[i] = libraryChange(rnd, 100*round+n+i+61)
						}
						db.MustExec(strings.Join(statements, "; "))
					}
					if round%2 == 1 {
						stop()
						for n := range 10 {
							db.MustExec(libraryChange(rnd, 1000*round+n))
						}
						_, stop = r.start()
					}
					if check(); t.Failed() {
						t.Fatalf("after round %d", round)
					}
				}
			})
		}
	})
}

// TestJoins_ALargeParentIsScanned: rows of a parent that has many are found page by page in the low lane, and no
// others.
func TestJoins_ALargeParentIsScanned(t *testing.T) {
	t.Parallel()
	many, others := 20_000, 3000
	if testing.Short() {
		many = 5000
	}
	db := testenv.DB(t)
	db.MustExec(library)
	db.MustExec(`INSERT INTO authors SELECT i, 'author ' || i FROM generate_series(1, 2) AS i`)
	db.MustExec(`INSERT INTO books SELECT i, 'title ' || i, CASE WHEN i <= $1::int THEN 1 ELSE 2 END
		FROM generate_series(1, $1::int + $2::int) AS i`, many, others)
	shape := joinedShapes()[2]
	r := newRig(t, db, shape.spec)
	r.start()
	r.settle()
	before := r.embedder.sent()
	for _, sql := range []string{
		`UPDATE authors SET name = 'renamed' WHERE id = 1`, `UPDATE books SET title = 'new' WHERE id = 1`,
	} {
		db.MustExec(sql)
	}
	done, most := make(chan struct{}), make(chan [2]int64, 1)
	go func() { // how many tasks are open at most, and how long the longest transaction of ours is, in milliseconds
		var open, took int64
		for {
			select {
			case <-done:
				most <- [2]int64{open, took}
				return
			default:
			}
			open = max(open, r.count(`SELECT count(*) FROM embedsidecar.task`))
			var longest int64
			if err := db.Super().QueryRow(t.Context(), `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)
				* 1000), 0)::bigint FROM pg_stat_activity WHERE usename = $1 AND state <> 'idle'`,
				r.role).Scan(&longest); err != nil {
				t.Error(err)
			}
			took = max(took, longest)
		}
	}()
	r.settle()
	close(done)
	found := <-most
	t.Logf("%d tasks open at most, the longest transaction took %d ms", found[0], found[1])
	if found[0] > 6000 { // scanAhead, and a page on top
		t.Errorf("%d tasks were open at a time", found[0])
	}
	shape.agrees(r)
	if n := r.embedder.sent() - before; n < many || n > many+1 {
		t.Errorf("%d texts were embedded, want %d", n, many)
	}
	type scan struct {
		Reason string
		Rows   int64
		Owners []string
	}
	want := scan{Reason: "a joined row was changed", Rows: int64(many)}
	for _, s := range testenv.Rows[scan](db, `SELECT reason, rows_seen AS rows, owners FROM embedsidecar.scan`) {
		if s.Reason != want.Reason || s.Rows != want.Rows || s.Owners != nil {
			t.Errorf("scan %+v, want %+v", s, want)
		}
	}
	db.MustExec(`TRUNCATE authors`)
	r.settle()
	shape.agrees(r)
	r.verify()
}

// TestJoins_Partitions: rows of a partitioned table have texts of plain tables and of partitions, and partitions of
// both may come and go.
func TestJoins_Partitions(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE posts (id bigint PRIMARY KEY, title text, author_id int) PARTITION BY RANGE (id);
		CREATE TABLE posts_1 PARTITION OF posts FOR VALUES FROM (0) TO (100);
		CREATE TABLE posts_2 (id bigint PRIMARY KEY, title text, author_id int);
		CREATE TABLE authors (id int PRIMARY KEY, name text);
		CREATE TABLE notes (id int PRIMARY KEY, post_id bigint, body text) PARTITION BY RANGE (id);
		CREATE TABLE notes_1 PARTITION OF notes FOR VALUES FROM (0) TO (100);
		CREATE TABLE notes_2 (id int PRIMARY KEY, post_id bigint, body text);
		CREATE INDEX ON notes_1 (post_id); CREATE INDEX ON notes_2 (post_id); CREATE INDEX ON posts (author_id);
		ALTER TABLE notes_1 REPLICA IDENTITY FULL; ALTER TABLE notes_2 REPLICA IDENTITY FULL;
		INSERT INTO authors VALUES (1, 'ada'), (2, 'emmy');
		INSERT INTO posts SELECT i, 'post ' || i, i % 2 + 1 FROM generate_series(1, 10) AS i;
		INSERT INTO posts_2 VALUES (101, 'post 101', 2);
		INSERT INTO notes VALUES (1, 1, 'first'), (2, 2, 'second'); INSERT INTO notes_2 VALUES (101, 1, 'third')`)
	notes := pipeline.Join{
		Schema: "public", Table: "notes_1", As: "old", On: on("post_id", "id"), Text: "string_agg(body, ' ' ORDER BY id)",
	}
	others := notes
	others.Table, others.As = "notes_2", "new"
	shape := joinedShape{"posts", pipeline.Spec{
		Name: "posts", Schema: "public", Table: "posts", Columns: []string{"title"}, IntoTable: "posts_embedding",
		Joins: pipeline.Joins{
			{Schema: "public", Table: "authors", As: "author", On: on("id", "author_id"), Text: "name"}, notes, others,
		},
	}, `SELECT p.id, concat_ws(E'\n\n', p.title, a.name, (SELECT string_agg(n.body, ' ' ORDER BY n.id) FROM notes_1 AS n
			WHERE n.post_id = p.id), (SELECT string_agg(n.body, ' ' ORDER BY n.id) FROM notes_2 AS n WHERE n.post_id = p.id))
		FROM posts AS p LEFT JOIN authors AS a ON a.id = p.author_id`, ""}
	r := newRig(t, db, shape.spec)
	r.start()
	for _, sql := range []string{
		"SELECT 1",
		"UPDATE authors SET name = 'grace' WHERE id = 1; UPDATE notes SET body = 'edited' WHERE id = 1",
		"ALTER TABLE notes ATTACH PARTITION notes_2 FOR VALUES FROM (100) TO (200); UPDATE notes SET post_id = 3 WHERE id = 101",
		"UPDATE notes SET id = 150 WHERE id = 2", // into the other partition
		"ALTER TABLE posts ATTACH PARTITION posts_2 FOR VALUES FROM (100) TO (200); UPDATE authors SET name = 'noether' WHERE id = 2",
		"ALTER TABLE notes DETACH PARTITION notes_1; DELETE FROM notes_1; UPDATE posts SET author_id = 1 WHERE id = 101",
		"ALTER TABLE posts DETACH PARTITION posts_1; UPDATE authors SET name = 'hopper'",
	} {
		db.MustExec(sql)
		r.settle()
		if shape.agrees(r); t.Failed() {
			t.Fatal(sql)
		}
	}
	r.verify()
}

// TestJoins_OtherJoins: joins are added, changed and taken away while the sidecar runs.
func TestJoins_OtherJoins(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(library)
	for n := range 60 {
		db.MustExec(libraryChange(rand.New(rand.NewPCG(uint64(n), 3)), n+1))
	}
	shapes := joinedShapes()
	shape := shapes[0]
	plain := shape.spec
	plain.Joins = nil
	r := newRig(t, db, plain)
	r.start()
	r.settle()
	for range 2 {
		r.init(shape.spec)
		db.Grant(r.role, r.pipelines[0])
		r.noticed()
		r.settle()
		shape.agrees(r)
		db.MustExec(`UPDATE tags SET name = name || '!'`)
		r.settle()
		shape.agrees(r)
		r.init(plain)
		r.noticed()
		r.settle()
		if n := r.count(`SELECT count(*) FROM pg_publication_rel`); n != 1 {
			t.Errorf("%d tables are published", n)
		}
		db.MustExec(`UPDATE tags SET name = name || '?'`)
		r.settle()
		r.verify()
	}
}

// TestP1_WhatAJoinedTextReadsChanges changes what rows of a joined table say, on either level, in ways that no row's
// change tells.
func TestP1_WhatAJoinedTextReadsChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ joined, change string }{
		"label of an enum": {
			`CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN moods AS mood[]; ALTER TABLE %[1]s ADD what moods;
				UPDATE %[1]s SET what = '{good}'`,
			`ALTER TYPE mood RENAME VALUE 'good' TO 'better'`,
		},
		"attribute of a composite type": {
			`CREATE TYPE person AS (name text); ALTER TABLE %[1]s ADD what person; UPDATE %[1]s SET what = '(Ann)'`,
			`ALTER TYPE person ADD ATTRIBUTE born int`,
		},
		"generated otherwise": {
			`ALTER TABLE %[1]s ADD what text GENERATED ALWAYS AS (upper(name)) STORED`,
			`ALTER TABLE %[1]s DROP what; ALTER TABLE %[1]s ADD what text GENERATED ALWAYS AS (lower(name)) STORED`,
		},
	} {
		for level, table := range []string{"authors", "publishers"} {
			t.Run(name+" of "+table, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t)
				db.MustExec(library)
				db.MustExec(`INSERT INTO publishers SELECT i, 'P' || i FROM generate_series(1, 3) AS i`)
				db.MustExec(`INSERT INTO authors SELECT i, 'A' || i, i FROM generate_series(1, 3) AS i`)
				db.MustExec(`INSERT INTO books SELECT i, 'B' || i, i % 3 + 1 FROM generate_series(1, 20) AS i`)
				db.MustExec(fmt.Sprintf(test.joined, table))
				shape := joinedShapes()[2]
				join := &shape.spec.Joins[0]
				if level == 1 {
					join = &join.Joins[0]
				}
				join.Text = strings.ReplaceAll(join.Text, "name", "what::text")
				letter := []string{"a", "p"}[level]
				shape.texts = strings.ReplaceAll(shape.texts, letter+".name", letter+".what::text")
				r := newRig(t, db, shape.spec)
				db.MustExec(`GRANT SELECT ON ` + table + ` TO ` + r.role)
				r.known()
				s, _ := r.start()
				r.settle()
				shape.agrees(r)
				noticed := s.Stream().CatalogueScans.Load()
				db.MustExec(strings.ReplaceAll(test.change, "%[1]s", table))
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return s.Stream().CatalogueScans.Load() > noticed, "the change was not noticed"
				})
				r.settle()
				r.verify()
				shape.agrees(r)
			})
		}
	}
}
