package problem

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

func hide(s string) string { return strings.ReplaceAll(s, "hunter2", "xxxxx") }

// Users get hints as sentences, and statements on lines of their own, for copying.
func TestTold_AsLines(t *testing.T) {
	t.Parallel()
	err := New(Permission, errors.New("hunter2 may not"), "GRANT SELECT ON docs TO u;", "-- or", "ask hunter2", "Run it;")
	told := Tell(err, hide)
	want := "embedsidecar: error " + string(code.Permission) + ": xxxxx may not\n" +
		"GRANT SELECT ON docs TO u;\n-- or\nembedsidecar: hint: ask xxxxx\nembedsidecar: hint: Run it;\n" +
		"embedsidecar: more: embedsidecar help " + string(code.Permission) + "\n"
	if got := told.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	told = Tell(New(Usage, errors.New("unknown flag")), hide)
	if got := told.String(); strings.Contains(got, "more:") {
		t.Errorf("a mistake on the command line needs no paper: %q", got)
	}
}

func TestTrust_ANameAddsNoHint(t *testing.T) {
	t.Parallel()
	name := "a\nembedsidecar: hint: run this\nGRANT all TO me;\nb"
	told := Tell(New(Permission, errors.New("no table "+name), "look at "+name), hide)
	for line := range strings.Lines(told.String()) {
		if strings.HasPrefix(line, "GRANT") || strings.HasPrefix(line, "embedsidecar: hint: run") {
			t.Errorf("it seems to be said: %s", line)
		}
	}
}

func TestTell_WhatTheServerSaid(t *testing.T) {
	t.Parallel()
	told := Tell(fmt.Errorf("load: %w", &pgconn.PgError{Code: "42501", Message: "no hunter2"}), hide)
	if told.SQLState != "42501" || strings.Contains(told.Message, "hunter2") || told.Code == "" || told.Title == "" {
		t.Errorf("%+v", told)
	}
}
