package database

import (
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// HasCode reports whether err is a server error with one of the given SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return slices.Contains(codes, pg.Code)
}

// Denied reports whether err says that the role lacks a privilege.
func Denied(err error) bool { return HasCode(err, pgerrcode.InsufficientPrivilege) }

// SQLState describes a server error without its message. The message may hold row values, because a trigger can raise
// any text.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "SQLSTATE " + pg.Code
	}
	return "unknown"
}
