package sidecar_test

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

// recorder keeps what is logged.
type recorder struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	canary.Search("a sidecar's log", b)
	return r.buf.Write(b)
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

func (r *recorder) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// seen returns how often each text was sent so far.
func (c *counter) seen() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.texts)
}

// hold takes the rig's slot as somebody else would, and returns what lets it go.
func (r *rig) hold() (letGo func()) {
	r.t.Helper()
	config, err := pgconn.ParseConfig(r.db.URL(testenv.Owner))
	if err != nil {
		r.t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["application_name"] = "a stranger"
	config.RuntimeParams["wal_sender_timeout"] = "0" // it never answers
	conn, err := pgconn.ConnectConfig(r.t.Context(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	var once sync.Once
	letGo = func() { once.Do(func() { _ = conn.Conn().Close() }) }
	r.t.Cleanup(letGo)
	sql := []string{"START_REPLICATION SLOT", r.slot, "LOGICAL 0/0 (proto_version '1', publication_names '" + r.db.Name +
		"_pub')"}
	conn.Exec(r.t.Context(), strings.Join(sql, " ")) // what it would read is not read
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.slot) == 1,
			"the slot is not taken"
	})
	return letGo
}

// quick makes dead letters after two tries.
func quick(o *sidecar.Options) { o.Retry.MaxAttempts = 2 }

// oneOf is one destination for the old majors and the other for the new, where each with each would only take time.
func oneOf(major int) func(table string, columns ...string) pipeline.Spec {
	if major < 17 {
		return column
	}
	return intoTable
}
