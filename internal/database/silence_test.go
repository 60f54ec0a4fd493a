package database_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_AnAnswerThatBreaksOff: the rest of an answer is lost, and the connection stays open without an error. A
// statement that runs much longer than an answer may take is not cancelled.
func TestP1_AnAnswerThatBreaksOff(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	proxy := testenv.StartProxy(t, db.Server.Addr())
	const patience = 500 * time.Millisecond
	pool, err := database.Connect(t.Context(), db.URLVia(proxy.Addr(), testenv.Superuser)+slowly,
		database.Options{ApplicationName: "test", MaxConns: 2, Patience: patience, IdleInTransaction: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "SELECT pg_sleep($1)", (4 * patience).Seconds()); err != nil {
		t.Fatalf("a statement that takes its time: %v", err)
	}
	asking, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// With rows this large, the server sends each as soon as it is computed.
	rows, err := pool.Query(asking, "SELECT repeat('x', 20000), pg_sleep(0.2) FROM generate_series(1, 5)")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for n := range 6 {
		if !rows.Next() {
			break
		}
		if n == 0 {
			proxy.Vanish()
		}
	}
	if rows.Err() == nil || asking.Err() != nil {
		t.Errorf("the answer ends with %v", rows.Err())
	}
}

// TestP1_WhatAVanishedConnectionHeldIsFree: a connection is lost while it sends. The server waits for the rest while
// holding locks, and none of its timeouts apply.
func TestP1_WhatAVanishedConnectionHeldIsFree(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec("CREATE TABLE public.held (id int)")
	proxy := testenv.StartProxy(t, db.Server.Addr())
	pool, err := database.Connect(t.Context(), db.URLVia(proxy.Addr(), testenv.Superuser)+slowly,
		database.Options{ApplicationName: "test", MaxConns: 2, Patience: 500 * time.Millisecond, IdleInTransaction: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	working, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tx, err := pool.Begin(working)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(working) }()
	if _, err := tx.Exec(working, "LOCK TABLE public.held IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	held := pgx.Identifier{"public", "held"}
	_, err = tx.CopyFrom(working, held, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) {
		proxy.Vanish()
		return nil, nil
	}))
	if err == nil || working.Err() != nil {
		t.Errorf("the copy ends with %v", err)
	}
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
		_, err := db.Super().Exec(t.Context(), "SET lock_timeout = '500ms'; SELECT count(*) FROM public.held")
		return err == nil, fmt.Sprint(err)
	})
}
