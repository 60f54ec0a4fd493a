package database

import (
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// HasCode reports whether err is an answer of the server with one of the SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return slices.Contains(codes, pg.Code)
}

// Denied reports whether err says that the role may not.
func Denied(err error) bool { return HasCode(err, pgerrcode.InsufficientPrivilege) }

// SQLState describes a server's error without its message, which may hold values of a row: a trigger may put in what it
// likes.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "SQLSTATE " + pg.Code
	}
	return "unknown"
}
