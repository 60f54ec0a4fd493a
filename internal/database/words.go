package database

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Words returns the text of an error. Of a server's message that may hold row text it reports only SQLSTATE and length:
// users' expressions, triggers and types may raise any text, under any SQLSTATE.
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

// serverErrors returns all server errors within an error.
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

// mayHoldText reports whether a message may contain values: the server gives a context (another function raised it), or
// it is about values.
func mayHoldText(pg *pgconn.PgError) bool {
	if pg.Where != "" {
		return !strings.HasPrefix(pg.Where, "PL/pgSQL function embedsidecar.")
	}
	return AboutSyntaxOfValue(pg) || pgerrcode.IsDataException(pg.Code) || pgerrcode.IsPLpgSQLError(pg.Code) ||
		pgerrcode.IsExternalRoutineException(pg.Code) || pgerrcode.IsExternalRoutineInvocationException(pg.Code)
}

// AboutSyntaxOfValue reports whether an error that looks like one of a statement is about a value, and quotes it: the
// server says where in a statement a mistake is. Such values become a tsquery, a tsvector or a jsonpath.
func AboutSyntaxOfValue(pg *pgconn.PgError) bool {
	const word = "pushValue" // a word is too long for a tsquery
	wrong := pg.Code == pgerrcode.SyntaxError || pg.Code == pgerrcode.InvalidName
	return wrong && pg.Position == 0 || pg.Routine == word
}
