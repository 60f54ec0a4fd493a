package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

const (
	dsnEnv    = "EMBEDSIDECAR_TEST_DSN"
	majorsEnv = "EMBEDSIDECAR_TEST_MAJORS"
	cacheEnv  = "EMBEDSIDECAR_PG_DIR"
)

// defaultMajors are the oldest major of Debian stable and oldstable, and the newest one.
var defaultMajors = []int{15, 18}

// Majors returns the major versions to test with, oldest first: those of EMBEDSIDECAR_TEST_MAJORS ("14,18"), or the one
// of EMBEDSIDECAR_TEST_DSN or PGBIN, or 15 and 18. The last one is the default of tests.
func Majors(t testing.TB) []int {
	t.Helper()
	majors, err := readMajors(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return majors
}

func readMajors(ctx context.Context) ([]int, error) {
	if list := os.Getenv(majorsEnv); list != "" {
		var majors []int
		for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
			major, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%s=%q: %q is no major version, want e.g. 15,18", majorsEnv, list, word)
			}
			majors = append(majors, major)
		}
		if len(majors) == 0 {
			return nil, fmt.Errorf("%s=%q names no major version, want e.g. 15,18", majorsEnv, list)
		}
		slices.Sort(majors)
		return slices.Compact(majors), nil
	}
	if dsn := os.Getenv(dsnEnv); dsn != "" {
		major, err := majorOfServer(ctx, dsn)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dsnEnv, err)
		}
		return []int{major}, nil
	}
	if bin := os.Getenv("PGBIN"); bin != "" {
		major, err := majorOfPrograms(ctx, bin)
		if err != nil {
			return nil, fmt.Errorf("PGBIN: %w", err)
		}
		return []int{major}, nil
	}
	return defaultMajors, nil
}

// FindServer returns the folder with the programs (initdb, postgres, ...) of a major version with pgvector. Major 0
// means any: PGBIN's, or the newest one found. If none is found, the error says what to run.
func FindServer(ctx context.Context, major int) (bin string, found int, err error) {
	if bin := os.Getenv("PGBIN"); bin != "" {
		has, err := majorOfPrograms(ctx, bin)
		if err != nil {
			return "", 0, fmt.Errorf("PGBIN: %w", err)
		}
		if major != 0 && has != major {
			return "", 0, fmt.Errorf("PGBIN=%s is PostgreSQL %d, want %d", bin, has, major)
		}
		if err := hasVector(ctx, bin); err != nil {
			return "", 0, fmt.Errorf("PGBIN: %w", err)
		}
		return bin, has, nil
	}
	majors := []int{major}
	if major == 0 {
		majors = []int{18, 17, 16, 15, 14}
	}
	var reasons []error
	for _, dirs := range [][]string{cacheDirs(), {"/usr/lib/postgresql"}} {
		for _, m := range majors {
			for _, dir := range dirs {
				bin := filepath.Join(dir, strconv.Itoa(m), "bin")
				if _, err := os.Stat(filepath.Join(bin, "postgres")); err != nil {
					continue
				}
				if err := hasVector(ctx, bin); err != nil {
					reasons = append(reasons, err)
					continue
				}
				return bin, m, nil
			}
		}
	}
	want := "18"
	if major != 0 {
		want = strconv.Itoa(major)
	}
	return "", 0, errors.Join(append(
		[]error{fmt.Errorf("no PostgreSQL %s with pgvector found; run tools/postgres.sh %s, or set PGBIN to a folder with its programs", want, want)}, reasons...)...)
}

// cacheDirs are the folders where tools/postgres.sh installs servers. Root's is readable by all users.
func cacheDirs() []string {
	if dir := os.Getenv(cacheEnv); dir != "" {
		return []string{dir}
	}
	dirs := []string{}
	if os.Getuid() != 0 { // the server's user cannot read root's home
		if dir, err := os.UserCacheDir(); err == nil {
			dirs = append(dirs, filepath.Join(dir, "embedsidecar", "pg"))
		}
	}
	return append(dirs, "/var/cache/embedsidecar/pg")
}

func ask(ctx context.Context, bin, program, question string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(bin, program), question).Output()
	return strings.TrimSpace(string(out)), err
}

func majorOfPrograms(ctx context.Context, bin string) (int, error) {
	out, err := ask(ctx, bin, "postgres", "--version")
	if err != nil {
		return 0, fmt.Errorf("ask %s/postgres for its version: %w", bin, err)
	}
	// "postgres (PostgreSQL) 15.19 (Debian ...)", "postgres (PostgreSQL) 19devel"
	var major int
	if _, err := fmt.Sscanf(out, "postgres (PostgreSQL) %d", &major); err != nil {
		return 0, fmt.Errorf("read the version of %s/postgres: %q", bin, out)
	}
	return major, nil
}

func hasVector(ctx context.Context, bin string) error {
	out, err := ask(ctx, bin, "pg_config", "--sharedir")
	if err != nil {
		return fmt.Errorf("ask %s/pg_config for its folders: %w", bin, err)
	}
	if _, err := os.Stat(filepath.Join(out, "extension", "vector.control")); err != nil {
		return fmt.Errorf("the PostgreSQL in %s has no pgvector", bin)
	}
	return nil
}

func majorOfServer(ctx context.Context, dsn string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var version int
	err := onURL(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version)
	})
	return version / 10000, err
}
