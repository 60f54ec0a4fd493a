package database_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	for want, codes := range map[database.Fault][]string{
		database.Locked:      {"55P03"},
		database.Conflict:    {"40001", "40P01", "40002"},
		database.Canceled:    {"57014"},
		database.Forbidden:   {"42501"},
		database.Schema:      {"42703", "42P01", "42883", "42704", "3F000", "42804", "55000"},
		database.Unavailable: {"08001", "25006", "28P01", "53100", "53400", "57P03", "58030"},
		database.Data:        {"22012", "22P02", "23505", "P0001", "39000", "54000", "0A000", "55006", "XX000"},
	} {
		for _, code := range codes {
			for severity, want := range map[string]database.Fault{
				"": want, "ERROR": want, "FATAL": database.Ended,
				"PANIC": database.Ended,
			} {
				err := fmt.Errorf("a statement: %w", &pgconn.PgError{Code: code, SeverityUnlocalized: severity})
				if got := database.Judge(err); got != want {
					t.Errorf("%s %s: fault %d, want %d", severity, code, got, want)
				}
			}
		}
	}
	for _, err := range []error{nil, io.ErrUnexpectedEOF, context.Canceled, errors.New("else")} {
		if got := database.Judge(err); got != database.Unjudged || database.RowsFault(err) {
			t.Errorf("%v: fault %d", err, got)
		}
	}
	if got := database.Judge(fmt.Errorf("load: %w", database.ErrLocked)); got != database.Locked {
		t.Errorf("ErrLocked: fault %d", got)
	}
}
