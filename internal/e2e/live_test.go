//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// TestKills_LiveConfiguration changes the configuration of a running sidecar again and again, by its file, by SQL and
// by HTTP, under writes and searches: pipelines are added, changed and removed, files are broken, and the sidecar is
// killed, mostly while it takes a change over. Afterwards every vector of what is configured is that of its row's text,
// no search failed but for a kill, and no more texts were embedded again than a configuration changed, but for those
// whose vectors were nowhere when the sidecar was killed, and for as many at each kill as rows share a text.
func TestKills_LiveConfiguration(t *testing.T) {
	t.Parallel()
	changes := fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills)
	seed := fromEnvironment(t, "EMBEDSIDECAR_SEED", 1)
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "texts", "times", "composite", "filtered", "tokens",
			"citexts", "half_table")
		r.url, r.stream = r.login(testenv.Owner), ""
		for _, name := range askedFor {
			r.do(0, "uninstall", name, "--yes") // it comes by SQL or HTTP
		}
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes,
			workload.Options{Seed: uint64(major + 100*seed), Writers: 2, Pause: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l := &liveDeployer{
			deployer: deployer{
				changed: map[string]int{}, killer: killer{rig: r, r: rand.New(rand.NewPCG(uint64(seed), uint64(major)))},
				all: shapes, now: slices.Clone(shapes[:len(shapes)-len(askedFor)]),
			},
			file: filepath.Join(r.dir, "live.yaml"), admin: testenv.Nowhere(t), tokens: filepath.Join(r.dir, "tokens"),
			doors: map[string]int{}, nowhere: map[string]int{},
		}
		told := strings.Fields(r.do(0, "token", "create", "ops", "--role", "admin", "--tokens-file", l.tokens))
		l.token = told[len(told)-1]
		searching, stop := context.WithCancel(t.Context())
		searched := make(chan struct{})
		l.write()
		c := l.begin()
		r.streaming(c)
		go func() {
			defer close(searched)
			l.search(searching)
		}()
		for n := 0; n < changes || len(l.moves) > 0; n++ {
			c = l.change(c)
		}
		done, err := run.Stop()
		if err != nil {
			t.Fatal(err)
		}
		l.inForce()
		stop()
		<-searched
		found := l.prove(c, slices.Concat(l.now, l.declared))
		sent, again, lost := r.sent(), r.sentAgain(), l.lost()
		t.Logf("%d changes: %d kills, %d broken files; added %d, changed %v, removed %d, requests %v; %d searches; texts "+
			"embedded %d, of which %d again, %d by changes, %d lost at most; %s; %s", changes, l.kills, l.broken, l.added,
			l.changed, l.removed, l.doors, l.asked.Load(), sent, again, l.again, lost, found, done)
		if l.added == 0 || l.removed == 0 || l.broken == 0 || l.kills == 0 || len(l.changed) != len(alterations)+1 ||
			len(l.doors) != 6 || l.asked.Load() == 0 {
			t.Error("the history lacks some of it")
		}
		// Rows of a workload may have one text, and a row an earlier text again: so many are allowed for each kill.
		if most := l.again + lost + l.kills*mostDirect; again > most {
			t.Errorf("%d texts were embedded again, want at most %d", again, most)
		}
	})
}

// liveDeployer is a deployer by one file.
type liveDeployer struct {
	deployer

	file, admin, tokens, token string

	declared []workload.Shape // what is asked for by SQL or HTTP
	requests int              // made so far
	doors    map[string]int   // how many of them, by door and action
	nowhere  map[string]int   // at how many kills a text that was embedded had no vector, by its hash
	again    int              // rows whose text a change of configuration changed

	broken int
	killed atomic.Int64 // how often the sidecar was killed, or was not there
	asked  atomic.Int64
}

// begin starts a sidecar that follows the file.
func (l *liveDeployer) begin() *child {
	l.t.Helper()
	return l.start(nil, "run", "--config", l.file, "--set", "lease="+short.String(), "--workers", "2",
		"--set", "retry.initial=100ms", "--set", "retry.max=1s", "--admin-listen", l.admin, "--tokens-file", l.tokens)
}

// write puts what is to be configured into the place of the file, as editors do.
func (l *liveDeployer) write() {
	l.t.Helper()
	specs := make([]pipeline.Spec, len(l.now))
	for i, s := range l.now {
		specs[i] = s.Spec()
	}
	if err := os.Rename(l.config(specs), l.file); err != nil {
		l.t.Fatal(err)
	}
}

// change makes the next change of the file; the sidecar is killed in the middle of some.
func (l *liveDeployer) change(c *child) *child {
	l.t.Helper()
	const broken, moved, ask = "broken", "moved", "ask"
	if len(l.moves) == 0 {
		l.moves = append(slices.Sorted(maps.Keys(alterations)), broken, moved, moved, moved, moved,
			ask, ask, ask, ask, ask, ask, ask, ask)
		l.r.Shuffle(len(l.moves), func(i, j int) { l.moves[i], l.moves[j] = l.moves[j], l.moves[i] })
	}
	move := l.moves[0]
	l.moves = l.moves[1:]
	a, alters := alterations[move]
	switch {
	case alters:
		s := &l.now[l.at(a.shape)]
		a.alter(s, workload.Named(l.all, a.shape)[0])
		l.changed[move]++
		l.again += l.rows(*s)
	case move == moved:
		l.moveInFile()
	case move == ask:
		l.ask()
	default:
		text, err := os.ReadFile(l.file)
		if err == nil {
			err = os.WriteFile(l.file, text[:l.r.IntN(len(text))], 0o600)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		l.broken++
		l.rest(600)
	}
	l.write()
	l.rest(1500)
	if l.r.IntN(3) > 0 {
		c.mustLive()
		return c
	}
	l.killed.Add(1)
	for n := 1 + l.r.IntN(2); n > 0; n-- { // a second time while it starts
		c.kill()
		l.kills++
		l.neverAhead()
		l.loses()
		c = l.begin()
		l.rest(400)
	}
	l.streaming(c)
	testenv.Eventually(l.t, waitTimeout, func() (bool, string) { // who asks before waits for it a few seconds only
		c.mustLive()
		return c.said("pipeline started"), c.tail()
	})
	l.killed.Add(1)
	return c
}

// loses notes which texts were embedded and have their vectors nowhere, now that nobody remembers them.
func (l *liveDeployer) loses() {
	l.t.Helper()
	stored := map[string]bool{}
	for _, sql := range testenv.Values[string](l.db, `SELECT format('SELECT encode(substring(text_hash FOR 8), ''hex'')
			FROM %s WHERE text_hash IS NOT NULL', a.attrelid::regclass)
		FROM   pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE  a.attname = 'text_hash' AND c.relkind = 'r'`) {
		for _, hash := range testenv.Values[string](l.db, sql) {
			stored[hash] = true
		}
	}
	for hash := range l.counts() {
		if !stored[hash] {
			l.nowhere[hash]++
		}
	}
}

// lost returns how many texts were embedded again since their vectors were nowhere.
func (l *liveDeployer) lost() (n int) {
	l.t.Helper()
	for hash, times := range l.counts() {
		n += min(times-1, l.nowhere[hash])
	}
	return n
}

// moveInFile adds a pipeline or takes one out.
func (l *liveDeployer) moveInFile() {
	name := []string{"texts", "times"}[l.r.IntN(2)]
	if at := l.at(name); at >= 0 {
		l.now = slices.Delete(l.now, at, at+1)
		l.removed++
		return
	}
	l.now = append(l.now, workload.Named(l.all, name)...)
	l.added++
}

// askedFor are the pipelines that are asked for by SQL and HTTP.
var askedFor = []string{"citexts", "half_table"}

// ask has one of them created, changed or dropped, by SQL or by HTTP: eight requests are each of them by both. It does
// not wait for the outcome.
func (l *liveDeployer) ask() {
	l.t.Helper()
	const shouted, mostOpen = `upper(body)`, 50
	testenv.Eventually(l.t, waitTimeout, func() (bool, string) { // a role may have 100
		open := l.open()
		return open < mostOpen, fmt.Sprintf("%d requests are open", open)
	})
	turn, which := l.requests/len(askedFor), l.requests%len(askedFor)
	l.requests++
	name := askedFor[which]
	at := slices.IndexFunc(l.declared, func(s workload.Shape) bool { return s.Name == name })
	var action, method, path string
	var definition map[string]any
	switch turn % 3 {
	case 0:
		action, method, path = "create", http.MethodPost, ""
		l.declared = append(l.declared, workload.Named(l.all, name)...)
		definition = inFile(l.declared[len(l.declared)-1].Spec())
		l.again += l.rows(l.declared[len(l.declared)-1]) // another text may be there from before
	case 1:
		action, method, path = "change", http.MethodPatch, "/"+name
		s := &l.declared[at]
		definition = map[string]any{"text": shouted, "columns": nil}
		if s.Text != "" {
			definition = map[string]any{"text": nil, "columns": s.Columns}
		}
		s.Text = other(s.Text, "", shouted)
		l.again += l.rows(*s)
		l.changed["asked"]++
	default:
		action, method, path = "drop", http.MethodDelete, "/"+name
		l.declared = slices.Delete(l.declared, at, at+1)
	}
	if (turn+which)%2 == 0 {
		l.doors["SQL "+action]++
		args := map[string][]any{"create": {definition}, "change": {name, definition}, "drop": {name}}[action]
		l.db.MustExec("SELECT embedsidecar."+action+"_pipeline("+[]string{"", "$1", "$1, $2"}[len(args)]+")", args...)
		return
	}
	l.doors["HTTP "+action]++
	body, err := json.Marshal(definition)
	if err != nil {
		l.t.Fatal(err)
	}
	testenv.Eventually(l.t, waitTimeout, func() (bool, string) { // it may be starting
		req, err := http.NewRequestWithContext(l.t.Context(), method, "http://"+l.admin+"/api/v1/pipelines"+path+"?wait=0s",
			bytes.NewReader(body))
		if err != nil {
			l.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+l.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		said, _ := io.ReadAll(resp.Body)
		return resp.StatusCode < http.StatusMultipleChoices, fmt.Sprintf("%s %s: %s %s", method, path, resp.Status, said)
	})
}

// open is how many requests have no outcome yet.
func (l *liveDeployer) open() int {
	l.t.Helper()
	return l.count(`SELECT count(*) FROM embedsidecar.requests WHERE state IN ('waiting', 'in_work')`)
}

// rows is how many rows a table has.
func (l *liveDeployer) rows(s workload.Shape) int {
	return l.count("SELECT count(*) FROM " + s.Source())
}

// inForce waits until what is set up is what the file and the requests say.
func (l *liveDeployer) inForce() {
	l.t.Helper()
	testenv.Eventually(l.t, waitTimeout, func() (bool, string) {
		open := l.open()
		return open == 0, fmt.Sprintf("%d requests are open", open)
	})
	for _, why := range testenv.Values[string](l.db,
		`SELECT concat_ws(' ', action, pipeline, reason) FROM embedsidecar.requests WHERE state = 'refused'`) {
		l.t.Errorf("a request was refused: %s", why)
	}
	testenv.Eventually(l.t, waitTimeout, func() (bool, string) {
		said := l.do(0, "plan", "--config", l.file)
		return strings.Contains(said, "nothing to change"), said
	})
}

// search asks again and again in the pipelines that are always configured, until ctx ends.
func (l *liveDeployer) search(ctx context.Context) {
	conn, err := pgx.Connect(ctx, l.db.URL(testenv.Owner))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	always := []string{"integers", "composite", "filtered", "tokens"}
	for ctx.Err() == nil {
		calm, found, name := l.killed.Load(), 0, always[l.asked.Load()%int64(len(always))]
		_, err := conn.Exec(ctx, `CALL embedsidecar.ask($1, 'a question', '1 min')`, name)
		if err == nil {
			err = conn.QueryRow(ctx, `SELECT count(*) FROM embedsidecar.search($1, 'a question', 3, '1 min')`, name).Scan(&found)
		}
		if l.asked.Add(1); ctx.Err() == nil && l.killed.Load() == calm && calm%2 == 0 && err != nil {
			l.t.Errorf("a search in %s with nothing killed: %v", name, err)
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}
