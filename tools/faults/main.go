// The program faults writes docs/faults.md: what can go wrong, what is to happen then, which tests prove it, and how
// they ended last.
//
//	go run ./tools/faults -check       fails when a named test is missing or the page is not what would be written
//	go run ./tools/faults              writes the page
//	go run ./tools/faults EVENTS...    takes the results from outputs of `go test -json` and writes the page
//
// The faults are in faults.csv; a test is named by a regular expression, which a folder may precede: slot\.TestJudge.
// The last results are in results.csv: of every test that stands for a fault, how it ended, and the longest time that
// stands after "recovery" in what it logged.
package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	input  = "tools/faults/faults.csv"
	output = "tools/faults/results.csv"
	page   = "docs/faults.md"
	module = "github.com/embedsidecar/embedsidecar/"
)

// fault is a line of faults.csv, with the tests that its expressions find.
type fault struct {
	name, expected, missing string
	tests                   []string // folder.Test
}

// result is the result of a test.
type result struct {
	outcome  string
	recovery time.Duration // 0: it logged none
}

func main() {
	check := flag.Bool("check", false, "write nothing, and fail where something is not as it should be")
	form := flag.String("form", "long form", "in which form the tests were run, and on what")
	flag.Parse()
	of, err := exec.Command("git", "describe", "--always", "--dirty").Output() //nolint:noctx // it takes a moment
	if err == nil || flag.NArg() == 0 {
		err = run(".", strings.TrimSpace(string(of))+", "+*form, *check, flag.Args())
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "faults: error:", err)
		os.Exit(1)
	}
}

func run(root, of string, check bool, events []string) error {
	tests, err := declared(root)
	if err != nil {
		return err
	}
	lines, err := table(filepath.Join(root, input))
	if err != nil {
		return err
	}
	faults, err := parse(lines[1:], tests)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		if err := collect(filepath.Join(root, output), of, events, faults); err != nil {
			return err
		}
	}
	last, err := table(filepath.Join(root, output))
	if err != nil {
		return err
	}
	path, want := filepath.Join(root, page), render(faults, last)
	if got, err := os.ReadFile(path); check && (err != nil || string(got) != want) {
		return fmt.Errorf("%s is not what go run ./tools/faults writes", page)
	} else if check {
		return nil
	}
	return os.WriteFile(path, []byte(want), 0o644) //nolint:gosec // a page for everybody
}

// declared returns every test of the tree as folder.Test.
func declared(root string) (tests []string, err error) {
	name := regexp.MustCompile(`(?m)^func (Test[A-Z0-9]\w*)\(`)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path) //nolint:gosec // the tree is our own
		if err != nil {
			return err
		}
		in, err := filepath.Rel(root, filepath.Dir(path))
		for _, found := range name.FindAllSubmatch(source, -1) {
			tests = append(tests, filepath.ToSlash(in)+"."+string(found[1]))
		}
		return err
	})
	slices.Sort(tests)
	return tests, err
}

func table(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	if err == nil && len(lines) == 0 {
		err = errors.New(path + " is empty")
	}
	return lines, err
}

// parse reads faults and finds their tests.
func parse(lines [][]string, tests []string) (faults []fault, err error) {
	for i, line := range lines {
		f := fault{name: line[1], expected: line[2], missing: line[4]}
		if line[0] != strconv.Itoa(i+1) {
			return nil, fmt.Errorf("fault %d has the number %s", i+1, line[0])
		}
		for pattern := range strings.FieldsSeq(line[3]) {
			expression, err := regexp.Compile(`(^|[./])(` + pattern + `)$`)
			if err != nil {
				return nil, err
			}
			before := len(f.tests)
			for _, test := range tests {
				if expression.MatchString(test) && !slices.Contains(f.tests, test) {
					f.tests = append(f.tests, test)
				}
			}
			if len(f.tests) == before {
				return nil, fmt.Errorf("fault %d: %s finds no test that the others do not", i+1, pattern)
			}
		}
		if len(f.tests) == 0 && f.missing == "" {
			return nil, fmt.Errorf("fault %d has no test and does not say why", i+1)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// collect reads outputs of go test -json, and writes the results of the faults' tests.
func collect(path, of string, events []string, faults []fault) error {
	all := map[string]result{}
	for _, from := range events {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		read(content, all)
	}
	lines := [][]string{{of, "result", "recovery"}}
	for _, test := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(faults, func(f fault) bool { return slices.Contains(f.tests, test) }) {
			lines = append(lines, []string{test, all[test].outcome, all[test].recovery.String()})
		}
	}
	var b bytes.Buffer
	return errors.Join(csv.NewWriter(&b).WriteAll(lines), os.WriteFile(path, b.Bytes(), 0o644)) //nolint:gosec // as above
}

var recovery = regexp.MustCompile(`\brecovery ([0-9.]+(?:ms|s|m[0-9.]+s))\b`)

// read adds the results of an output. A test that failed anywhere counts as failed; a skipped test counts as not run.
func read(content []byte, all map[string]result) {
	for line := range bytes.Lines(content) {
		var event struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &event) != nil || event.Test == "" {
			continue // output of make or the compiler
		}
		top, _, within := strings.Cut(event.Test, "/")
		test := strings.TrimPrefix(event.Package, module) + "." + top
		r := all[test]
		switch found := recovery.FindStringSubmatch(event.Output); {
		case event.Action == "fail":
			r.outcome = "failed"
		case event.Action == "pass" && !within && r.outcome == "":
			r.outcome = "passed"
		case found != nil:
			took, _ := time.ParseDuration(found[1])
			r.recovery = max(r.recovery, took)
		}
		if r != (result{}) {
			all[test] = r
		}
	}
}

const head = `# Faults

<!-- Generated by go run ./tools/faults from tools/faults/faults.csv -->

What can go wrong, what has to happen then, and the tests that prove it. ` + "`make test-all`" + ` runs them in their usual form;
` + "`make nightly`" + ` runs them in their long form, and writes the last two columns. A fault has passed when each of its tests
that ran has passed. The recovery is the longest time from a fault until every change is embedded again, where a test
measures it.

Commit tested: %s.

| | fault | expected | tests | result | recovery |
| --- | --- | --- | --- | --- | --- |
`

// render writes the page. The first line of the last results is a header, which begins with the tested version.
func render(faults []fault, last [][]string) string {
	results := map[string]result{}
	for _, line := range last[1:] {
		took, _ := time.ParseDuration(line[2]) // as printed
		results[line[0]] = result{line[1], took}
	}
	var b strings.Builder
	fmt.Fprintf(&b, head, last[0][0])
	for i, f := range faults {
		outcome, took, shown, recovered := "not run", time.Duration(0), []string{}, "-"
		for _, test := range f.tests {
			r, dot := results[test], strings.LastIndexByte(test, '.')
			if r.outcome == "failed" || r.outcome == "passed" && outcome != "failed" {
				outcome = r.outcome
			}
			took = max(took, r.recovery)
			shown = append(shown, "`"+test[dot+1:]+"` ("+test[:dot]+")")
		}
		if len(f.tests) == 0 {
			outcome, shown = "-", []string{"no test"}
		}
		if took > 0 {
			recovered = fmt.Sprintf("%.1f s", took.Seconds())
		}
		tests := strings.TrimSuffix(strings.Join(shown, ", ")+"; "+f.missing, "; ")
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s |\n", i+1, f.name, f.expected, tests, outcome, recovered)
	}
	return b.String()
}
