package main

import (
	"fmt"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_EveryCommandRefusesASchemaOfSomebodyElse: a tenant made the schema, with views in the place of tables, and a superuser types
// commands.
func TestTrust_EveryCommandRefusesASchemaOfSomebodyElse(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE ON DATABASE %q TO %s`, s.db.Name, tenant))
	s.db.MustExecSuper(fmt.Sprintf(`SET ROLE %s;
		CREATE SCHEMA embedsidecar;
		CREATE FUNCTION embedsidecar.trap() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN EXECUTE 'ALTER ROLE %[1]s SUPERUSER'; END IF;
			RETURN 1; END $$;
		CREATE VIEW embedsidecar.schema_version AS SELECT embedsidecar.trap() AS version;
		CREATE VIEW embedsidecar.lsn_checkpoint AS SELECT 'embedsidecar'::name AS slot_name, embedsidecar.trap() AS lsn;
		CREATE VIEW embedsidecar.installation AS SELECT embedsidecar.trap() > 0 AS enabled;
		CREATE VIEW embedsidecar.pipeline AS SELECT embedsidecar.trap() AS pipeline_id;
		RESET ROLE`, tenant))
	s.as(testenv.Superuser)
	for _, command := range [][]string{
		{"status"},
		{"check"},
		{"wait", "--caught-up", "--timeout", "1m"},
		{"verify"},
		{"uninstall", "--yes"},
		{"search", "docs", "x"},
		{"similar", "docs", "1"},
		{"serve", "--http", "127.0.0.1:0", "--no-auth"},
		{"pause"},
		{"resume"},
		{"retry"},
		{"init", "--table", "docs", "--columns", "title", "--into", "embedding"},
		{"run", "--once", "--table", "docs", "--columns", "title", "--into", "embedding"},
		{"run", "--once", "--no-init"},
	} {
		_, stderr := s.run(exitPermission, command...)
		s.has(stderr, `belongs to role "`+tenant+`"`, "--trust-owner "+tenant)
		if testenv.Value[bool](s.db, "SELECT rolsuper FROM pg_roles WHERE rolname = $1", tenant) {
			t.Fatalf("%s made %s a superuser", command[0], tenant)
		}
	}
}
