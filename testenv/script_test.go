package testenv_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs tools/postgres.sh with only PATH and env in its environment.
func script(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	path, err := filepath.Abs("../tools/postgres.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestPostgresScript_PrintsTheFolderThatTestsLookInto(t *testing.T) {
	t.Parallel()
	home := "/home/somebody/.cache"
	if os.Getuid() == 0 {
		home = "/var/cache"
	}
	for _, test := range []struct {
		env  []string
		want string
	}{
		{[]string{"HOME=/home/somebody"}, home + "/embedsidecar/pg/18"},
		{[]string{"EMBEDSIDECAR_PG_DIR=/some/where"}, "/some/where/18"},
	} {
		if got, err := script(t, test.env, "--print", "18"); err != nil || got != test.want {
			t.Errorf("%v: printed %q (%v), want %q", test.env, got, err, test.want)
		}
	}
}

func TestPostgresScript_NamesMistakesAndTheWayOut(t *testing.T) {
	t.Parallel()
	dir := "EMBEDSIDECAR_PG_DIR=" + t.TempDir()
	for _, test := range []struct {
		env  []string
		args []string
		want []string
	}{
		{[]string{dir}, nil, []string{"usage:"}},
		{[]string{dir}, []string{"--what"}, []string{"usage:"}},
		{[]string{dir}, []string{"13"}, []string{
			"error: no recipe for PostgreSQL '13'",
			"hint: or use a PostgreSQL with pgvector of your own: PGBIN=",
		}},
		{
			[]string{"EMBEDSIDECAR_PG_DIR=relative"},
			[]string{"18"},
			[]string{"error: the cache folder must be an absolute path", "hint: set EMBEDSIDECAR_PG_DIR"},
		},
		{[]string{"EMBEDSIDECAR_PG_DIR=/proc/nothing"}, []string{"18"}, []string{
			"error: cannot write to /proc/nothing",
			"hint: set EMBEDSIDECAR_PG_DIR",
		}},
		{
			[]string{dir, "PGVECTOR_SRC=/nowhere"},
			[]string{"--system", "7"},
			[]string{"error: there is no /usr/lib/postgresql/7/bin/pg_config", "hint: apt-get install postgresql-7"},
		},
	} {
		out, err := script(t, test.env, test.args...)
		if err == nil {
			t.Errorf("%v %v: no error", test.env, test.args)
		}
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v %v: said %q, want %q", test.env, test.args, out, want)
			}
		}
	}
}
