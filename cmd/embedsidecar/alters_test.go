package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestStory_AnApplicationAltersItsTables beside a running sidecar: after a wait the vectors are right, unchanged texts
// are embedded once, and no counter decreases.
func TestStory_AnApplicationAltersItsTables(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.db.MustExec(`ALTER TABLE docs ALTER id TYPE int`)
	s.db.MustExec(`CREATE TABLE notes (id bigint PRIMARY KEY,
		body text) PARTITION BY RANGE (id); CREATE TABLE notes_a PARTITION OF notes FOR VALUES FROM (0) TO (100);
		INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 31) AS i`)
	flags := []string{
		"--pipeline", "docs: title, body -> embedding", "--pipeline", "docs: body -> table docs_embedding",
		"--pipeline", "notes: body -> table notes_embedding",
	}
	d := s.start(append(flags, "--ops-listen", "127.0.0.1:0")...)
	base := "http://" + d.logged("probes and metrics listen", "address")
	embedded := map[string]int{"public.docs": 20, "public.docs:docs_embedding": 20, "public.notes": 31}
	costs := func(what string, each int, pipelines []string, change ...string) {
		t.Helper()
		for _, sql := range change {
			s.db.MustExec(sql)
		}
		s.run(0, "wait", "--caught-up") // immediately: the ALTER sends nothing through the slot
		for _, name := range pipelines {
			embedded[name] += each
		}
		s.counts(base, what, embedded)
		s.run(0, "verify", "--deep", "100")
	}
	d.logged("streaming", "slot")
	costs("the first time", 0, nil)

	// A column is renamed: no row is written, and searches work all the time.
	versions := func() string {
		return testenv.Value[string](s.db, "SELECT string_agg(xmin::text || ctid::text, ',' ORDER BY id) FROM docs")
	}
	before := versions()
	s.db.MustExec("ALTER TABLE docs RENAME title TO heading")
	stdout, _ := s.run(0, "search", "public.docs", "title 7\n\nbody 7", "-k", "1", "-o", "json")
	if hits := decoded[[]search.Hit](t, stdout); len(hits) != 1 || hits[0].Key != "7" {
		t.Errorf("found %+v", hits)
	}
	costs("another name for a column", 0, nil)
	if versions() != before {
		t.Error("rows were written")
	}
	if code, body := get(t, base+"/readyz?verbose"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
	stdout, _ = s.run(0, append([]string{"check"}, flags...)...)
	s.has(stdout, `warn   pipeline "public.docs": column "title" of "public"."docs" is now called "heading": name it so in the configuration`, `ok     pipeline "public.docs"`)

	costs("another type", 31, []string{"public.notes"}, `ALTER TABLE notes ALTER body TYPE varchar USING body || '!'`)
	costs("a partition that is attached", 19, []string{"public.notes"}, `CREATE TABLE notes_b (LIKE notes INCLUDING ALL)`,
		`INSERT INTO notes_b SELECT i, 'note ' || i FROM generate_series(101, 119) AS i`,
		`ALTER TABLE notes ATTACH PARTITION notes_b FOR VALUES FROM (100) TO (200)`)

	// A key becomes wider: the hint keeps what is there.
	s.db.MustExec("ALTER TABLE docs ALTER id TYPE bigint")
	s.becomes("public.docs:docs_embedding", health.Misconfigured,
		`ALTER TABLE "public"."docs_embedding" ALTER COLUMN "id" TYPE bigint`, "embedsidecar init")
	s.run(0, append([]string{"init"}, flags...)...)
	s.becomes("public.docs:docs_embedding", health.UpToDate)
	costs("a row with a wider key", 1, []string{"public.docs", "public.docs:docs_embedding"},
		"INSERT INTO docs VALUES (5000000000, 'x', 'y')")

	// Rows that are compared again are counted once, and earlier counts stay.
	s.run(0, "backfill", "notes")
	costs("a comparison", 0, nil)
	if p := s.state("public.notes"); p.ScanReason != "requested" || p.ScanSeen != 50 || p.ScanExpected <= 0 {
		t.Errorf("%+v", p)
	}
	if n := s.figure(base, "embedsidecar_backfill_rows_seen", `"public.notes"`); n > 50 {
		t.Errorf("%v of 50 rows were looked at", n)
	}

	d = s.getsAPlugin(d)
	d.end(syscall.SIGTERM, 0)
}

// counts waits until the metrics of a sidecar have counted so many rows of each pipeline, shortly after the database
// has the vectors. The history has fewer rows: it omits changes that were embedded directly.
func (s *stage) counts(base, what string, want map[string]int) {
	s.t.Helper()
	for name, rows := range want {
		testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
			now := s.figure(base, "embedsidecar_tasks_finished_total", `outcome="embedded"`, strconv.Quote(name))
			return now == float64(rows), fmt.Sprintf("%s: %v rows of %s are embedded, want %d", what, now, name, rows)
		})
	}
}

// getsAPlugin adds a plugin to the configuration. The running sidecar does not know it, and says what to do.
func (s *stage) getsAPlugin(running *daemon) (next *daemon) {
	s.t.Helper()
	file, _ := s.toys()
	s.run(0, "init", "--config", file)
	s.becomes("toys", health.PluginUnknown, `plugin "toy"`,
		"add it to the configuration of the sidecar, or install it, then restart the sidecar")
	running.end(syscall.SIGTERM, 0)
	next = s.start("--config", file)
	s.becomes("toys", health.UpToDate)
	return next
}

// toys returns a configuration with one pipeline, toys, whose plugin is a separate file.
func (s *stage) toys() (file, plugin string) {
	s.t.Helper()
	plugin = filepath.Join(s.t.TempDir(), "toy")
	dir, err := plugins()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "embedsidecar-fake"), plugin); err != nil {
		s.t.Fatal(err)
	}
	file = filepath.Join(s.t.TempDir(), "embedsidecar.yaml")
	config := `version: 1
plugins: {catalog: [{name: toy, path: ` + plugin + `}]}
pipelines:
  - {name: toys, table: docs, columns: [body], plugin: toy, into: {table: toys}}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file, plugin
}

// figure returns a number of a sidecar's metrics: the first whose labels contain the words.
func (s *stage) figure(base, name string, labels ...string) (value float64) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		_, body := get(s.t, base+"/metrics")
	lines:
		for line := range strings.SplitSeq(body, "\n") {
			if !strings.HasPrefix(line, name+"{") {
				continue
			}
			for _, label := range labels {
				if !strings.Contains(line, label) {
					continue lines
				}
			}
			var err error
			value, err = strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			return err == nil, line
		}
		return false, name + " is missing in " + body
	})
	return value
}
