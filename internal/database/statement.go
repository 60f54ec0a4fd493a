package database

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// DB is a pool, a connection or a transaction. Callers that need less take one of the smaller interfaces.
type DB interface {
	Beginner
	Querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Beginner begins transactions, or savepoints within one.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Reader runs statements that return rows.
type Reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Querier runs statements, in a transaction if it is one.
type Querier interface {
	Reader
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Collect runs a query of sql/queries and returns its rows.
func Collect[T any](ctx context.Context, db Reader, query string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sqlfiles.Query(query), args...)
	return pgx.CollectRows(rows, scan)
}

// fieldsOf caches the fields of structs by column name.
var fieldsOf sync.Map // of map[string]int, by reflect.Type

// fields returns the fields of a struct by their tag db, or by their name in lower case.
func fields(t reflect.Type) map[string]int {
	known, _ := fieldsOf.Load(t)
	if found, ok := known.(map[string]int); ok {
		return found
	}
	found := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		found[strings.ToLower(t.Field(i).Name)] = i
	}
	for i := range t.NumField() { // last: a tag takes precedence over a name
		if tag := t.Field(i).Tag.Get("db"); tag != "" {
			found[tag] = i
		}
	}
	fieldsOf.Store(t, found)
	return found
}

// RowOfView reads a row of a view into a struct, by column name (or the tag db of a field). NULL becomes the zero
// value. Columns without a field are ignored: a view may have more.
func RowOfView[T any](row pgx.CollectableRow) (v T, err error) {
	into := reflect.ValueOf(&v).Elem()
	known, columns := fields(into.Type()), row.FieldDescriptions()
	found := map[int]reflect.Value{} // a pointer for each field, which NULL leaves nil
	targets := make([]any, len(columns))
	for i := range columns {
		at, ok := known[columns[i].Name]
		if !ok {
			at, ok = known[strings.ReplaceAll(columns[i].Name, "_", "")]
		}
		if ok {
			found[at] = reflect.New(reflect.PointerTo(into.Field(at).Type()))
			targets[i] = found[at].Interface()
		}
	}
	if err = row.Scan(targets...); err != nil {
		return v, err
	}
	for at, value := range found {
		if !value.Elem().IsNil() {
			into.Field(at).Set(value.Elem().Elem())
		}
	}
	return v, nil
}

// Given returns a parameter that is NULL when v is the zero value.
func Given[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// Quote quotes a name, or a schema and a name, for use in SQL.
func Quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

// QuoteAll quotes names and separates them by commas.
func QuoteAll(names []string) string {
	return strings.Join(lists.Map(names, func(name string) string { return Quote(name) }), ", ")
}

// Literal writes a string constant for statements that take no parameters (DDL, and printed statements).
func Literal(s string) string {
	if strings.Contains(s, `\`) {
		return " E'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// Within limits how long each further statement of a transaction may take.
func Within(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", limit.Milliseconds()))
	return err
}

// Limited runs f with a deadline for users' code, which may catch the server's cancellation and go on: its connection
// is then closed, which ends it (endsWithClient), and Limited returns ErrTooLong.
func Limited(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return ErrTooLong
	}
	return err
}

// Acquired returns a connection of db, if db is a pool, and what gives it back: waiting for one is not part of what
// Limited limits. Anything else is returned as it is.
func Acquired(ctx context.Context, db DB) (one DB, release func(), err error) {
	pool, is := db.(*pgxpool.Pool)
	if !is {
		return db, func() {}, nil
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	return conn, conn.Release, nil
}

// Extended runs one statement by the extended protocol. Exec without arguments would use the simple protocol, which
// allows several.
func Extended(ctx context.Context, tx pgx.Tx, sql string) error {
	rows, err := tx.Query(ctx, sql, pgx.QueryExecModeExec)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}
