package sidecar_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// misbehaviour is what plugins do at their worst: all the time, not for one text.
var misbehaviour = map[string]struct {
	faults string
	works  bool // its rows can be embedded all the same
	never  bool // it is not given any
}{
	"count":    {"wrong-count-every=1", false, false},
	"width":    {"wrong-dims-every=1", false, false},
	"order":    {"permute-every=1", false, true},
	"nan":      {"nan-on=o", false, false},
	"garbage":  {"garbage-every=1", false, false},
	"huge":     {"huge-every=1", false, false},
	"slow":     {"cost=300ms/call", true, false},
	"hanging":  {"hang-on=row", false, false},
	"crashing": {"crash-on=row", false, false},
	"absent":   {"exit-at-start", false, true},
	"leaking":  {"leak=16MiB/call", true, false},
	"swelling": {"swell-on=row", false, false},
	"forking":  {"fork", true, false},
	"flooding": {"flood=5000/call", true, false},
}

// TestP5_PluginsThatMisbehaveHarmOnlyTheirOwn: they all do at the same time, and two pipelines beside them do all
// their work. No vector is another row's or another text's.
func TestP5_PluginsThatMisbehaveHarmOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	path := fakePlugin(t)
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	specs := []pipeline.Spec{column("docs", "body"), intoTable("notes", "body")}
	for name := range misbehaviour {
		db.MustExec(`CREATE TABLE bad_` + name + ` (id bigint PRIMARY KEY, body text)`)
		specs = append(specs, column("bad_"+name, "body"))
	}
	r := newRig(t, db, specs...)
	hosts := map[string]*host.Host{}
	for name, m := range misbehaviour {
		limit := time.Second // of a call that is to fail
		if m.works {
			limit = waitTimeout // however slow the machine, it is not the plugin's fault
		}
		h, err := host.New(host.Options{
			Name: name, Path: path, RestartDelay: 10 * time.Millisecond, RestartDelayMax: 200 * time.Millisecond,
			Canary: time.Minute, Log: logger(t),
			CallTimeout: func(int, int) time.Duration { return limit }, StartTimeout: waitTimeout, MemoryLimit: 256 << 20,
			Env: map[string]string{
				"EMBEDSIDECAR_PLUGIN_DIMS": fmt.Sprint(dims), "EMBEDSIDECAR_PLUGIN_FAULTS": m.faults,
				"EMBEDSIDECAR_PLUGIN_FORKS": filepath.Join(t.TempDir(), "forks"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Errorf("close the plugin %s: %v", name, err)
			}
		})
		hosts[name] = h
		db.MustExec(`UPDATE embedsidecar.pipeline SET plugin = $1, model = 'fake', fingerprint = $2 WHERE name = 'bad_' || $1`, name, fmt.Sprintf("fake-1-splitmix64-sha256-dims%d", dims))
	}
	r.options = func(o *sidecar.Options) {
		quick(o)
		o.Loops = 2
		o.Embedder = func(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
			if h := hosts[p.Plugin]; h != nil {
				return h, nil
			}
			return r.embedder, nil
		}
	}
	r.start()
	const rows = 100
	for name := range misbehaviour {
		db.MustExec(`INSERT INTO bad_`+name+` SELECT i, 'row ' || i || ' of ' || $1 FROM generate_series(1, $2::int) AS i`,
			name, rows)
	}
	// The others work while all of that happens, in one go and row by row.
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::int) AS i`, rows)
	r.has(rows, `SELECT count(embedding) FROM docs`)
	for i := range 20 {
		db.MustExec(`INSERT INTO notes VALUES ($1, $2)`, i, fmt.Sprint("note ", i))
		r.has(int64(i+1), `SELECT count(*) FROM notes_embedding`)
	}
	for name, m := range misbehaviour {
		if m.works {
			r.has(rows, `SELECT count(embedding) FROM bad_`+name)
			continue
		}
		if !m.never {
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				tried := hosts[name].Stats()
				return tried.FailedCalls > 0 || tried.Calls > 0 && name == "nan", fmt.Sprintf("plugin %s has not failed yet: %+v",
					name, tried)
			})
		}
		if n := r.count(`SELECT count(embedding) FROM bad_` + name); n != 0 {
			t.Errorf("%d vectors of the plugin %s were believed", n, name)
		}
	}
	type stored struct {
		Body, Embedding string
	}
	for name, m := range misbehaviour {
		if !m.works {
			continue
		}
		for _, s := range testenv.Rows[stored](db, `SELECT body, embedding::text FROM bad_`+name) {
			if got, err := pipeline.ParseVector([]byte(s.Embedding)); err != nil || got[0] != vector.Of(s.Body, dims)[0] {
				t.Errorf("plugin %s: a vector that is not its text's", name)
				break
			}
		}
	}
	if left := testenv.Values[string](db,
		`SELECT p.name || ' ' || t.row_key FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
		WHERE p.plugin = 'counter'`); len(left) != 0 {
		t.Errorf("pipelines of good plugins have open tasks: %s", strings.Join(left, ", "))
	}
	if got := r.embedder.sent(); got != rows+20 {
		t.Errorf("%d texts were sent to the good embedder, want %d", got, rows+20)
	}
}
