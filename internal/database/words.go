package database

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Words are an error's, but for a server's message that may hold text of a row: of that only its SQLSTATE and its
// length are told. A user's expression, trigger or type raises what it likes, under any SQLSTATE, to anyone who runs
// the program.
func Words(err error) string {
	text := err.Error()
	for _, pg := range serverErrors(err) {
		if mayHoldText(pg) {
			text = strings.ReplaceAll(text, pg.Error(), fmt.Sprintf("the server refused it with SQLSTATE %s and a message of %d characters",
				pg.Code, utf8.RuneCountInString(pg.Message)))
		}
	}
	return text
}

// serverErrors are all answers of a server within an error.
func serverErrors(err error) (list []*pgconn.PgError) {
	switch e := err.(type) { //nolint:errorlint // one step at a time
	case *pgconn.PgError:
		return []*pgconn.PgError{e}
	case interface{ Unwrap() error }:
		return serverErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			list = append(list, serverErrors(one)...)
		}
	}
	return list
}

// mayHoldText reports whether a message may be made of values: those of functions other than ours, of which the server
// gives a context, and those of the classes that speak of values.
func mayHoldText(pg *pgconn.PgError) bool {
	if pg.Where != "" {
		return !strings.HasPrefix(pg.Where, "PL/pgSQL function embedsidecar.")
	}
	return pgerrcode.IsDataException(pg.Code) || pgerrcode.IsPLpgSQLError(pg.Code) ||
		pgerrcode.IsExternalRoutineException(pg.Code) || pgerrcode.IsExternalRoutineInvocationException(pg.Code)
}
