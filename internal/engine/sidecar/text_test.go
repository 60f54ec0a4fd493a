package sidecar_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// hostileTexts are what a column of type text can hold and programs trip over. None is empty.
var hostileTexts = []string{
	"\u202eright to left\u202c and back", "שלום العربية", "e\u0301\u0323\u0308 combined",
	"👩‍👩‍👧‍👦🏳️‍🌈", "\u0001\u0007\u001b[31mred\u007f", "\ufeffwith a mark",
	"\ufffd replaced", "\U0010ffff the last", "\ue000 private", "\ufffe\uffff no characters", "ＦＵＬＬ width",
	"İIıi ß ẞ", "\u2028line\u2029paragraph", "\u200b\u200d\u2060joined",
	strings.Repeat("Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍", 50), "'; DROP TABLE docs; --", "%s %d %n",
	"{{.}} ${HOME} $(id) `id`", "\\x00 \\u0000 \\", "NULL", "null", "[1,2,3]",
	strings.Repeat("a", 10_000), strings.Repeat("word ", 20_000), "\t\r\n\v\f x", "0", "-1e309", "NaN",
}

// blankTexts hold nothing to embed.
var blankTexts = []string{"", " ", "\t\r\n\v\f", "\u00a0\u2003\u3000", strings.Repeat(" ", 100_000)}

func TestP1_HostileAndBlankTexts(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)`)
		r := newRig(t, db, spec("docs", "title", "body"))
		s, _ := r.start()
		for i, text := range hostileTexts {
			db.MustExec(`INSERT INTO docs VALUES ($1, NULL, $2), ($1 + 1000, $2, ''), ($1 + 2000, $2, $2)`, i, text)
		}
		for i, text := range blankTexts {
			db.MustExec(`INSERT INTO docs VALUES ($1, $2, NULL), ($1 + 1000, NULL, $2), ($1 + 2000, $2, $2)`, 10_000+i, text)
		}
		r.settle()
		if n, want := r.count(vectors(spec("docs"))), int64(3*len(hostileTexts)); n != want {
			t.Errorf("%d vectors of %d rows with a text", n, want)
		}
		for _, text := range hostileTexts {
			if n := r.embedder.sent(text); n != 1 {
				t.Errorf("%.40q was sent %d times, want once for two rows", text, n)
			}
		}
		r.verify()
		// From text to blank and back.
		db.MustExec(`UPDATE docs SET title = '  ', body = E'\n' WHERE id < 5`)
		db.MustExec(`UPDATE docs SET title = 'a text at last' WHERE id >= 10000`)
		r.settle()
		r.verify()
		if n, want := r.count(vectors(spec("docs"))), int64(3*len(hostileTexts)-5+3*len(blankTexts)); n != want {
			t.Errorf("%d vectors of %d rows with a text", n, want)
		}
		for _, blank := range blankTexts {
			if n := r.embedder.sent(blank); n != 0 {
				t.Errorf("%.10q was sent %d times", blank, n)
			}
		}
		if n := s.States()[0].Worker.Sanitised.Load(); n != 0 {
			t.Errorf("%d texts were cleaned in a database whose texts are clean", n)
		}
	})
}

func TestP1_BytesThatAreNoText(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		spec := oneOf(major)
		t.Helper()
		db := testenv.DB(t, testenv.Major(major), testenv.Encoding("SQL_ASCII"))
		db.MustExec(`CREATE TABLE docs (code text PRIMARY KEY, body text)`)
		raw := func(expression string) string { return `convert_from(` + expression + `, 'SQL_ASCII')` }
		db.MustExec(`INSERT INTO docs SELECT 'plain ' || i, 'body ' || i FROM generate_series(1, 20) AS i`)
		db.MustExec(`INSERT INTO docs VALUES ('latin', ` + raw(`'\x636166e9'`) + `), ('half', ` + raw(`'\x61c3'`) +
			`), ('all', ` + raw(`'\xfffefdfc'`) + `)`)
		r := newRig(t, db, spec("docs", "body"))
		s, _ := r.start()
		r.settle()
		if n := r.embedder.sent("caf\ufffd"); n != 1 {
			t.Errorf("Latin-1 was not sent as UTF-8: %d", n)
		}
		r.verify()
		// Through the slot, with keys that are no text either.
		db.MustExec(`INSERT INTO docs SELECT ` + raw(`'\xe97c5c'::bytea || set_byte('\x00', 0, i)`) +
			`, 'odd key ' || i FROM generate_series(128, 255) AS i`)
		db.MustExec(`UPDATE docs SET body = body || ` + raw(`'\xff'`) + ` WHERE code LIKE 'plain 1%'`)
		db.MustExec(`UPDATE docs SET body = 'clean' WHERE code = 'latin'`)
		db.MustExec(`DELETE FROM docs WHERE code = ` + raw(`'\xe97c5cff'`))
		r.settle()
		r.verify()
		if n, want := r.count(vectors(spec("docs"))), r.count(`SELECT count(*) FROM docs`); n != want {
			t.Errorf("%d vectors of %d rows", n, want)
		}
		// Both sides hash the bytes as they are.
		r.counted()
		stats := s.Stream()
		made := stats.Made.Load() + stats.Joined.Load()
		db.MustExec(`UPDATE docs SET body = body`)
		r.counted()
		if now := stats.Made.Load() + stats.Joined.Load(); now != made {
			t.Errorf("updates that change nothing made %d tasks", now-made)
		}
		if n := s.States()[0].Worker.Sanitised.Load(); n == 0 {
			t.Error("nobody counted the texts that were cleaned")
		}
	})
}

// TestP9_ATextOf100MB is not parallel: it measures memory.
func TestP9_ATextOf100MB(t *testing.T) {
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, hits int DEFAULT 0)`)
	db.MustExec(`ALTER TABLE docs ALTER body SET STORAGE EXTERNAL`) // to compress it would only take the server's time
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		var m runtime.MemStats
		var peak uint64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-stop:
				most <- peak
				return
			case <-tick.C:
			}
		}
	}()
	const size = 100 << 20
	db.MustExec(`INSERT INTO docs VALUES (1, 'é' || repeat('0123456789abcdef', 100 << 16)), (2, 'small')`)
	db.MustExec(`UPDATE docs SET hits = 1`)
	r.settle()
	close(stop)
	peak := int64(<-most) - int64(before.HeapAlloc)
	t.Logf("heap: %d MB at most for a text of %d MB", peak>>20, size>>20)
	// The message as it came, the tuple made of it, and what waits to be collected.
	if peak > 4*size {
		t.Errorf("%d MB for a text of %d MB", peak>>20, size>>20)
	}
	// The vector is made of the text's start.
	start := "é" + strings.Repeat("0123456789abcdef", 1<<16)[:1<<20-1]
	if n := r.embedder.sent(start); n != 1 || r.embedder.sent() != 2 {
		t.Errorf("the first 1,048,576 characters were sent %d times in %d texts, want once in 2", n, r.embedder.sent())
	}
	got := testenv.Value[string](db, `SELECT embedding::text FROM docs_embedding WHERE id = 1`)
	stored, err := pipeline.ParseVector([]byte(got))
	if want := vector.Of(start, dims); err != nil || !slices.Equal(stored, want) {
		t.Errorf("the vector is %v (%v), want %v", stored, err, want)
	}
}

func TestP5_ATextExpressionThatFailsOnSomeRows(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, price int, pieces int)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i, 100, i % 50 FROM generate_series(1, 300) AS i`)
	spec := intoTable("docs")
	spec.Text, spec.Filter = `body || ' at ' || price / pieces`, `id <> 100 AND (pieces <> 7 OR 1 / (pieces - 7) > 0)`
	r := newRig(t, db, spec)
	r.options = quick
	r.start()
	r.settle()
	type failed struct{ Key, Class, Message string }
	got := testenv.Rows[failed](db,
		`SELECT row_key, error_class, error_message FROM embedsidecar.task WHERE state = 'failed' ORDER BY row_key::int`)
	var keys []string
	for _, f := range got {
		keys = append(keys, f.Key)
		if f.Class != "data" || !strings.Contains(f.Message, "22012") {
			t.Errorf("%s: class %s, %q; want data and the SQLSTATE of a division by zero", f.Key, f.Class, f.Message)
		}
	}
	// By the filter 7, 57, ...; by the text 50, 150, ...: the filter keeps 100 from its text.
	if want := "[7 50 57 107 150 157 200 207 250 257 300]"; fmt.Sprint(keys) != want {
		t.Errorf("dead letters %v, want %s", keys, want)
	}
	if n := r.count(`SELECT count(*) FROM docs_embedding`); n != 300-11-1 {
		t.Errorf("%d vectors, want %d", n, 300-11-1)
	}
	db.MustExec(`UPDATE docs SET pieces = 8 WHERE pieces IN (0, 7)`)
	r.settle()
	r.verify()
}

func TestP1_GeneratedColumnsInTheText(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		for _, kind := range []string{"STORED", "VIRTUAL"} {
			if kind == "VIRTUAL" && major < 18 {
				continue
			}
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t, testenv.Major(major))
				db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, hits int DEFAULT 0, loud text GENERATED ALWAYS AS (upper(body)) ` + kind + `)`)
				db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 50) AS i`)
				plain, custom := intoTable("docs", "loud"), column("docs")
				custom.Name, custom.Text = "custom", `loud || '!'`
				r := newRig(t, db, plain, custom)
				r.start()
				r.settle()
				if n := r.embedder.sent("BODY 7", "BODY 7!"); n != 2 {
					t.Errorf("the generated text was sent %d times, want once to each pipeline", n)
				}
				db.MustExec(`UPDATE docs SET body = 'other ' || id WHERE id <= 10`)
				db.MustExec(`UPDATE docs SET body = NULL WHERE id = 20`)
				db.MustExec(`UPDATE docs SET hits = 1`)
				r.settle()
				if n := r.embedder.sent("OTHER 7", "OTHER 7!"); n != 2 {
					t.Errorf("the new text was sent %d times, want once to each pipeline", n)
				}
				r.verify()
			})
		}
	})
}

func TestP8_TheSameTextInManyRows(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO docs SELECT i, 'one of ' || i % 10 FROM generate_series(1, 1000) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		_, stop := r.start()
		r.settle()
		if n := r.embedder.sent(); n != 10 {
			t.Errorf("1,000 rows with 10 texts sent %d texts", n)
		}
		stop()
		r.start() // what it remembers now, it reads from the destination
		db.MustExec(`INSERT INTO docs SELECT i, 'one of ' || i % 10 FROM generate_series(1001, 1500) AS i`)
		db.MustExec(`UPDATE docs SET body = 'one of 3' WHERE id <= 100`)
		r.settle()
		db.MustExec(`UPDATE docs SET id = id + 5000 WHERE id <= 200`)
		r.settle()
		if n := r.embedder.sent(); n != 10 {
			t.Errorf("rows that took over texts of others sent %d texts", n-10)
		}
		r.verify()
	})
}
