package verbs_test

import (
	"os"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// Each verb has its function in the schema. Operators may call these and no other function that writes to the audit.
func TestVerbs_EachHasItsFunctionAndItsGrant(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.RunRole()
	_, operator := db.SQLRoles()
	// Functions with other callers: package generations changes models, a bulk load records its start, and a listener
	// turns on notifications in SQL.
	functions := []string{
		"model_change", "model_drop_old", "model_rollback", "model_switch", "note_bulk", "notify_changes",
	}
	for _, v := range verbs.All {
		functions = append(functions, v.SQL)
		if v.Usage == "" || v.Button == "" || v.Tells == "" {
			t.Errorf("%s lacks words", v.Name)
		}
	}
	granted := testenv.Values[string](db, `SELECT p.proname::text FROM pg_proc AS p
		WHERE p.pronamespace = 'embedsidecar'::regnamespace AND 'said_by' = ANY (p.proargnames)
			AND has_function_privilege($1, p.oid, 'EXECUTE') ORDER BY 1`, operator)
	if slices.Sort(functions); !slices.Equal(functions, granted) {
		t.Errorf("verbs have the functions %v, and operators may call %v", functions, granted)
	}
}
