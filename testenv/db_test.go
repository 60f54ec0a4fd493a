package testenv_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestDB_IsMigratedAndBelongsToTheOwner(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		if got := testenv.Value[int](db, `SELECT current_setting('server_version_num')::int / 10000`); got != major ||
			db.Server.Major() != major {
			t.Errorf("server is %d (Major %d), want %d", got, db.Server.Major(), major)
		}
		if got := testenv.Value[int](db, `SELECT version FROM embedsidecar.schema_version`); got < 1 {
			t.Errorf("schema version %d, want at least 1", got)
		}
		if got := testenv.Value[bool](db, `SELECT rolsuper FROM pg_roles WHERE rolname = current_user`); got {
			t.Error("the pool is a superuser's")
		}
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(3)); CREATE PUBLICATION p FOR TABLE docs`)
		if n := db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i, '[1,2,3]' FROM generate_series(1, $1) i`, 5); n != 5 {
			t.Errorf("inserted %d rows, want 5", n)
		}
		if got := testenv.Values[string](db, `SELECT body FROM docs WHERE id > 3 ORDER BY id`); !slices.Equal(got,
			[]string{"text 4", "text 5"}) {
			t.Errorf("bodies %q", got)
		}
	})
}

func TestDB_IsIsolatedAndDropped(t *testing.T) {
	t.Parallel()
	var names, slots, roles []string
	t.Run("tests", func(t *testing.T) {
		for range 3 {
			t.Run("one", func(t *testing.T) {
				db := testenv.DB(t)
				db.MustExec(`CREATE TABLE same_name (id int)`)
				names = append(names, db.Name)
				slots = append(slots, db.Slot())
				roles = append(roles, db.Role("REPLICATION"), db.RunRole())
			})
		}
	})
	db := testenv.DB(t)
	if got := testenv.Values[string](db, `SELECT datname::text FROM pg_database WHERE datname = ANY($1)`,
		names); len(got) > 0 {
		t.Errorf("databases left behind: %q", got)
	}
	if got := testenv.Values[string](db, `SELECT slot_name::text FROM pg_replication_slots WHERE slot_name = ANY($1)`,
		slots); len(got) > 0 {
		t.Errorf("slots left behind: %q", got)
	}
	if got := testenv.Values[string](db, `SELECT rolname::text FROM pg_roles WHERE rolname = ANY($1)`,
		roles); len(got) > 0 {
		t.Errorf("roles left behind: %q", got)
	}
}

func TestDB_IsDroppedWhileItsSlotStreamsAndATransactionIsPrepared(t *testing.T) {
	t.Parallel()
	var name string
	var stream *pgx.Conn
	t.Run("test", func(t *testing.T) {
		db := testenv.DB(t)
		name = db.Name
		db.MustExec(`CREATE TABLE docs (id int); CREATE PUBLICATION p FOR TABLE docs`)
		slot := db.Slot()
		config, err := pgx.ParseConfig(db.URL(testenv.Owner))
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams["replication"] = "database"
		config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		stream, err = pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		stream.PgConn().Frontend().SendQuery(queryMessage(`START_REPLICATION SLOT ` + slot +
			` LOGICAL 0/0 (proto_version '1', publication_names 'p')`))
		if err := stream.PgConn().Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, waitLimit, func() (bool, string) {
			active := testenv.Value[bool](db, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, slot)
			return active, "slot is not active"
		})
		if testenv.Value[string](db, `SELECT current_setting('max_prepared_transactions')`) == "0" {
			return // a server that was there before; the slot is tested all the same
		}
		db.MustExec(`BEGIN; INSERT INTO docs VALUES (1); PREPARE TRANSACTION 'it''s ` + name + `'`)
	})
	_ = stream.Close(context.Background())
	db := testenv.DB(t)
	if got := testenv.Values[string](db, `SELECT datname::text FROM pg_database WHERE datname = $1`, name); len(got) > 0 {
		t.Errorf("database %s is still there", name)
	}
}

func TestEmpty_HasNoSchemaOfOurs(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	if got := testenv.Values[string](db, `SELECT nspname::text FROM pg_namespace WHERE nspname = 'embedsidecar'`); len(
		got) > 0 {
		t.Error("schema embedsidecar is there")
	}
	if got := testenv.Value[string](db, `SELECT '[1,2]'::vector(2)::text`); got != "[1,2]" {
		t.Errorf("vector prints %s", got)
	}
}

func TestRunRole_MayDoWhatItsPipelinesNeedAndNoMore(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE SCHEMA "My Shop";
		CREATE TABLE "My Shop"."Docs" (id bigint PRIMARY KEY, "Title" text, secret text, embedding vector(3));
		CREATE TABLE notes (id bigint PRIMARY KEY, body text, secret text);
		CREATE TABLE notes_embedding (id bigint PRIMARY KEY, embedding vector(3))`)
	key := []pipeline.KeyColumn{{Name: "id"}}
	role := db.RunRole(
		pipeline.Pipeline{Spec: pipeline.Spec{
			Schema: "My Shop", Table: "Docs", Columns: []string{"Title"},
			IntoColumn: "embedding",
		}, Key: key},
		pipeline.Pipeline{Spec: pipeline.Spec{
			Schema: "public", Table: "notes", Columns: []string{"body"},
			IntoTable: "notes_embedding",
		}, Key: key},
	)
	conn, err := pgx.Connect(t.Context(), db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	got := map[string]bool{}
	for _, sql := range []string{
		`SELECT id, "Title", embedding FROM "My Shop"."Docs"`,
		`UPDATE "My Shop"."Docs" SET embedding = NULL WHERE id = 1`,
		`INSERT INTO public.notes_embedding VALUES (1, '[1,2,3]')`,
		`SELECT count(*) FROM embedsidecar.task`,
		`SELECT count(*) FROM embedsidecar.answer`,
		`SELECT secret FROM "My Shop"."Docs"`,
		`UPDATE "My Shop"."Docs" SET "Title" = NULL`,
		`SELECT secret FROM public.notes`,
		`DELETE FROM public.notes`,
		`CREATE TABLE public.mine (id int)`,
		`DELETE FROM embedsidecar.pipeline`,
		`UPDATE embedsidecar.lsn_checkpoint SET publication = 'another'`,
		`UPDATE embedsidecar.lsn_checkpoint SET lsn = lsn`,
		`SELECT secret FROM embedsidecar.installation`,
		`UPDATE embedsidecar.pipeline SET text_expression = 'secret'`,
		`SELECT pg_create_logical_replication_slot('mine', 'pgoutput')`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		got[sql] = err == nil
	}
	want := map[string]bool{
		`SELECT id, "Title", embedding FROM "My Shop"."Docs"`:       true,
		`UPDATE "My Shop"."Docs" SET embedding = NULL WHERE id = 1`: true,
		`INSERT INTO public.notes_embedding VALUES (1, '[1,2,3]')`:  true,
		`SELECT count(*) FROM embedsidecar.task`:                    true,
		`SELECT count(*) FROM embedsidecar.answer`:                  true,
		`SELECT secret FROM "My Shop"."Docs"`:                       false,
		`UPDATE "My Shop"."Docs" SET "Title" = NULL`:                false,
		`SELECT secret FROM public.notes`:                           false,
		`DELETE FROM public.notes`:                                  false,
		`CREATE TABLE public.mine (id int)`:                         db.Server.Major() < 15,
		`DELETE FROM embedsidecar.pipeline`:                         false,
		// By the names that stand there an uninstall of the owner's finds what to drop.
		`UPDATE embedsidecar.lsn_checkpoint SET publication = 'another'`: false,
		`UPDATE embedsidecar.lsn_checkpoint SET lsn = lsn`:               true, // of any slot
		`SELECT secret FROM embedsidecar.installation`:                   true,
		`UPDATE embedsidecar.pipeline SET text_expression = 'secret'`:    false,
		`SELECT pg_create_logical_replication_slot('mine', 'pgoutput')`:  false, // BASE_BACKUP takes the same right
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the role may do (-want +got):\n%s", diff)
	}
	if !testenv.Value[bool](db, `SELECT pg_has_role(nspowner, '`+role+`', 'MEMBER') FROM pg_namespace WHERE nspname = 'embedsidecar'`) {
		t.Error("the schema's owner may not act as it")
	}
	streaming, err := pgx.Connect(t.Context(), db.URL(db.StreamRole()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = streaming.Close(context.Background()) }()
	for _, sql := range []string{
		`SELECT id FROM public.notes`, `SELECT count(*) FROM embedsidecar.task`,
		`SELECT FROM public.notes_embedding`,
	} {
		if _, err := streaming.Exec(t.Context(), sql); err == nil {
			t.Errorf("the role that streams may %s", sql)
		}
	}
}
