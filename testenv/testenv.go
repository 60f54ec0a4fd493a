// Package testenv provides a real PostgreSQL for tests and the demo: throw-away servers, a migrated database per test,
// a TCP proxy that breaks connections, and helpers for waiting. It does not touch databases that it did not make, and
// leaves nothing behind: servers die with the process that started them.
//
// A test binary that uses it ends its TestMain with Main, which stops the shared servers and reports leaked goroutines:
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		db := testenv.DB(t)
//		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(3))`)
//	}
//
// The servers come from EMBEDSIDECAR_TEST_DSN (a running server, with a superuser), or PGBIN (a folder with the
// programs), or the cache of tools/postgres.sh, or the system's PostgreSQL if it has pgvector. If none is found, a test
// fails and says what to run; it never skips.
package testenv

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/embedsidecar/embedsidecar/testenv/canary"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
)

// Main runs the tests of a binary, stops the shared servers and checks for leaked goroutines, except those that options
// ignore. It returns the exit status.
func Main(m *testing.M, options ...goleak.Option) int {
	plain()
	if err := cmp.Or(fewerCases(), atATime()); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	status := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		status = max(status, 1)
	}
	for _, err := range []error{canary.Found(), canary.Tell()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			status = max(status, 1)
		}
	}
	if status != 0 {
		return status // a failed test leaves goroutines, which would hide the reason
	}
	if err := leak.Find(options...); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	return 0
}

// plain unsets the environment variables of libpq: they concern the user's own servers.
func plain() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PG") && name != "PGBIN" {
			_ = os.Unsetenv(name)
		}
	}
}

// atATime sets the number of parallel tests, unless -parallel is given: two for each CPU, since tests mostly wait, but
// at most four. More would need more connections, slots and memory than the server has.
func atATime() error {
	tests := min(2*runtime.GOMAXPROCS(0), 4)
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(tests))
}

// shared are the servers of all tests of this binary, by major.
var shared = struct {
	mu      sync.Mutex
	servers map[int]func() (*Server, error)
}{servers: map[int]func() (*Server, error){}}

// Shared returns the server of this major that all tests of the binary share; 0 means the newest of Majors. The first
// call starts it, Main stops it. Tests that restart a server, fill its disk, hold transactions open or change its
// settings start their own instead.
//
// Its defaults are unusual on purpose (DateStyle, TimeZone, IntervalStyle, bytea_output, extra_float_digits), so that
// code that depends on them fails in tests.
func Shared(t testing.TB, major int) *Server {
	t.Helper()
	if major == 0 {
		majors := Majors(t)
		major = majors[len(majors)-1]
	}
	shared.mu.Lock()
	one := shared.servers[major]
	if one == nil {
		one = sync.OnceValues(func() (*Server, error) { return startShared(major) })
		shared.servers[major] = one
	}
	shared.mu.Unlock()
	server, err := one()
	if err != nil {
		t.Fatalf("PostgreSQL %d for tests: %v", major, err)
	}
	return server
}

func startShared(major int) (*Server, error) {
	ctx, cancel := contextFor(startTimeout)
	defer cancel()
	if dsn := os.Getenv(dsnEnv); dsn != "" {
		return Connect(ctx, dsn)
	}
	return Start(ctx, Options{Major: major, Config: unfriendly})
}

// fewerCases reduces the number of cases of rapid properties, which use a server here, unless -rapid.checks or
// EMBEDSIDECAR_CHECKS is set.
func fewerCases() error {
	f := flag.Lookup("rapid.checks")
	if f == nil {
		return nil
	}
	return f.Value.Set(cmp.Or(os.Getenv(checks), "30"))
}

// unfriendly are valid but unusual settings.
var unfriendly = map[string]string{
	"datestyle":          "SQL, DMY",
	"timezone":           "Asia/Kathmandu",
	"intervalstyle":      "sql_standard",
	"bytea_output":       "escape",
	"extra_float_digits": "0",
}

func stopShared() (err error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, one := range shared.servers {
		if server, failed := one(); failed == nil {
			err = errors.Join(err, server.Broke(), server.Close())
		}
	}
	clear(shared.servers)
	return err
}

// EachMajor runs a test once per major of Majors, for features that differ between them: replication and write-back.
func EachMajor(t *testing.T, test func(t *testing.T, major int)) {
	t.Helper()
	for _, major := range Majors(t) {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) { test(t, major) })
	}
}

// checks is the variable for the number of cases of a property.
const checks = "EMBEDSIDECAR_CHECKS"

// each is the variable that makes every InTurn test run on each of Majors.
const each = "EMBEDSIDECAR_EACH"

// InTurn runs a test on one of Majors, selected by turn, to distribute tests that are long or do not depend on the
// major. It runs on each of them if the variable longer or EMBEDSIDECAR_EACH is set.
func InTurn(t *testing.T, turn int, longer string, test func(t *testing.T, major int)) {
	t.Helper()
	if os.Getenv(longer) != "" || os.Getenv(each) != "" {
		EachMajor(t, test)
		return
	}
	majors := Majors(t)
	major := majors[turn%len(majors)]
	t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) { test(t, major) })
}

// FromEnvironment reads a number that makes a test longer or shorter.
func FromEnvironment(t testing.TB, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number from 1", name, text)
	}
	return n
}

// Eventually polls until a condition holds. After timeout it fails the test with the last state from the condition.
func Eventually(t testing.TB, timeout time.Duration, condition func() (done bool, state string)) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	pause := 2 * time.Millisecond
	for {
		done, state := condition()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s; last state: %s", timeout, state)
		}
		<-time.After(pause)
		pause = min(pause*3/2, 100*time.Millisecond)
	}
}

// Python returns a Python with a client, which make test puts into the cache.
func Python(tb testing.TB, client string) string {
	tb.Helper()
	return filepath.Join(installed(tb, "openai", client), "..", "..", "..", "..", "bin", "python3")
}

// Pgai returns the SQL of pgai 0.12.1's schema, from the package that make test puts into the cache.
func Pgai(tb testing.TB) string {
	tb.Helper()
	sql, err := os.ReadFile(installed(tb, "pgai", "pgai/data/ai.sql"))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.NewReplacer("@extschema:vector@", "public", "__version__", "0.12.1").Replace(string(sql))
}

// installed returns the path of an installed Python package.
func installed(tb testing.TB, environment, name string) string {
	tb.Helper()
	// as the Makefile has it
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), os.Getenv("HOME")+"/.cache")
	all := filepath.Join(cache, "embedsidecar", environment, "venv-*", "lib", "*", "site-packages", name)
	found, err := filepath.Glob(all)
	if err != nil || len(found) == 0 {
		tb.Fatalf("%s for Python is not there: make test TEST=./e2e brings it", name)
	}
	return found[len(found)-1]
}
