//go:build linux

package e2e

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP9_MessagesOfStrangers: a role that may do nothing but log in fills the WAL with what looks like marks, in one
// transaction, small ones and one large. Neither the sidecar's memory nor its work on other changes depends on that,
// and it does not read them again.
func TestP9_MessagesOfStrangers(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{})), testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text); CREATE TABLE public.notes (id bigint PRIMARY KEY, body text)`)
	r := newRig(
		t, db, pipeline.Spec{
			Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
			IntoColumn: "embedding",
		},
		pipeline.Spec{
			Name: "notes", Schema: "public", Table: "notes", Columns: []string{"body"},
			IntoTable: "notes_embedding",
		},
	)
	r.senderTimeout("1min")
	c := r.runPlain()
	r.streaming(c)
	db.MustExec(`INSERT INTO public.docs VALUES (1, 'one')`)
	r.caughtUp()
	before := c.peak()

	conn, err := pgx.Connect(t.Context(), db.URL(db.Role("")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		`BEGIN`,
		// A mark is a byte and tags of eight: these are 128 MB of them, all different.
		`SELECT count(pg_logical_emit_message(true, 'embedsidecar',
			'\x02'::bytea || (SELECT string_agg(int8send(i * 100000 + n), '') FROM generate_series(1, 8000) AS n)))
			FROM generate_series(1, 2000) AS i`,
		`SELECT pg_logical_emit_message(true, 'embedsidecar', convert_to('\x02' || repeat('x', 128 * 1024 * 1024), 'UTF8'))`,
		`SELECT pg_logical_emit_message(false, 'embedsidecar', convert_to(repeat('x', 128 * 1024 * 1024), 'UTF8'))`,
		`COMMIT`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	db.MustExec(`INSERT INTO public.notes VALUES (1, 'after it'); INSERT INTO public.docs VALUES (2, 'after it')`)
	r.caughtUp()
	c.mustLive()
	if n := r.count(`SELECT (SELECT count(*) FROM public.notes_embedding) + (SELECT count(*) FROM public.docs WHERE embedding IS NOT NULL)`); n != 3 {
		t.Errorf("%d vectors, want 3", n)
	}
	if after := c.peak(); after > before+64<<10 {
		t.Errorf("memory went from %d to %d KiB", before, after)
	}
	if n := c.times("msg=streaming"); n != 1 {
		t.Errorf("the stream began %d times:\n%s", n, c.tail())
	}
	c.terminate()
}
