package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPage: docs/faults.md is the program's output, and every test that it names exists.
func TestPage(t *testing.T) {
	t.Parallel()
	if err := run("../..", "", true, nil); err != nil {
		t.Fatal(err)
	}
}

func TestParse_RefusesWhatNobodyProves(t *testing.T) {
	t.Parallel()
	tests := []string{"a.TestJudge", "b/c.TestJudge", "b/c.TestOther"}
	for line, want := range map[string]string{
		"1,f,e,TestJudge,":             "",
		`1,f,e,c\.TestJudge TestO.*,`:  "",
		"1,f,e,,nobody can":            "",
		"1,f,e,,":                      "does not say why",
		"2,f,e,TestJudge,":             "has the number 2",
		"1,f,e,TestJudg,":              "finds no test",
		"1,f,e,TestOther Test(Other),": "that the others do not",
		"1,f,e,Test(,":                 "missing closing",
	} {
		faults, err := parse([][]string{strings.Split(line, ",")}, tests)
		switch {
		case want == "" && (err != nil || len(faults) != 1):
			t.Errorf("%s: %v", line, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestRun_TakesTheResultsOfRuns: one failure counts; the longest recovery time counts; lines that are not events are
// skipped.
func TestRun_TakesTheResultsOfRuns(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, content := range map[string]string{
		"tools/faults/faults.csv":  "number,fault,expected,tests,missing\n1,one,e,TestA,\n2,two,e,TestA TestB,\n3,three,e,TestC,\n4,four,e,,why\n",
		"docs/faults.md":           "",
		"tools/faults/results.csv": "nothing,,\n",
		"a_test.go":                "func TestA(t *testing.T) {\nfunc TestB(t *testing.T) {\nfunc TestC(t *testing.T) {\n",
		"first": `building
{"Action":"output","Package":"` + module + `.","Test":"TestA/pg15","Output":"x_test.go:1: recovery 1.5s\n"}
{"Action":"output","Package":"` + module + `.","Test":"TestA/pg18","Output":"x_test.go:1: recovery 300ms after it\n"}
{"Action":"pass","Package":"` + module + `.","Test":"TestA"}
{"Action":"fail","Package":"` + module + `.","Test":"TestB"}
{"Action":"skip","Package":"` + module + `.","Test":"TestC"}
`,
		"second": `{"Action":"pass","Package":"` + module + `.","Test":"TestB"}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(root, "abc", false, []string{filepath.Join(root, "first"), filepath.Join(root, "second")}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Commit tested: abc.", "| 1 | one | e | `TestA` (.) | passed | 1.5 s |", "`TestB` (.) | failed | 1.5 s |",
		"`TestC` (.) | not run | - |", "| 4 | four | e | no test; why | - | - |",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if err := run(root, "", true, nil); err != nil {
		t.Errorf("looked at again: %v", err)
	}
	if took := recovery.FindStringSubmatch("recovery 1m2.5s"); took == nil {
		t.Error("minutes are not understood")
	} else if d, err := time.ParseDuration(took[1]); err != nil || d != 62500*time.Millisecond {
		t.Error(d, err)
	}
}
