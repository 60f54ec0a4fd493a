//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// generationRig is a table with a pipeline into an embedding table and one into a column, and two ways to make vectors
// of one width, two models or one model with two texts: nothing but the numbers tells their vectors apart.
type generationRig struct {
	*rig

	specs  []pipeline.Spec // into a table, into a column
	byText bool
	real   bool // the models are all-MiniLM-L6-v2, pooled in two ways, and there is the table alone
	kills  int  // that there are at least; where somebody asks for more than usual, there are more rows, too
	rows   int
	far    [fixedRows]float64 // of a fixed row by its second text from the question, which is its first

	turned   bool       // what serves is the second model, or text
	starting sync.Mutex // a child, of several goroutines
	writing  sync.Mutex // not while it is looked at whether all is true

	models  [2]string // folders
	embeds  [2]workload.Embed
	wrong   atomic.Int64 // answers that are of a mixture
	failed  atomic.Int64 // searches that failed or found nothing
	asked   atomic.Int64
	later   atomic.Int64 // answers "retry later", or none from a sidecar that was killed
	killed  atomic.Int64 // sidecars and plugins so far
	written atomic.Int64 // versions of rows
	longest atomic.Int64 // wait of a writer

	switching atomic.Bool  // names are being exchanged, or it is tried
	atSwitch  atomic.Int64 // wait of a writer meanwhile
}

// realEnv has tests use real models, as make test-life does.
const realEnv = "EMBEDSIDECAR_REAL_MODEL"

// otherText begins the second text of the one model.
const otherText = "zz "

// cosine is how far two vectors are apart.
func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	return 1 - dot/math.Sqrt(aa*bb)
}

const fixedRows = 40 // that no writer touches: their texts are the questions

func fixedText(i int) string { return fmt.Sprintf("q%dx%d", i, 7*i+3) }

func newGenerationRig(t *testing.T, byText bool) *generationRig {
	t.Helper()
	folder := shortFolder(t)
	g := &generationRig{
		byText: byText, kills: fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills), rows: 800,
		real: !byText && os.Getenv(realEnv) != "",
	}
	if g.kills > usualKills {
		g.rows = 20_000
	}
	width := dims
	for i := range g.models {
		if g.real {
			width, g.models[i] = 384, fmt.Sprint("minilm", i+1)
			realModel(t, filepath.Join(folder, g.models[i]), i == 1)
			continue
		}
		m := onnxtest.Letters(dims, uint64(i+1))
		f := modelFolder{t: t, path: filepath.Join(folder, fmt.Sprintf("letters%d", i+1))}
		f.replace(m, "a model")
		g.models[i], g.embeds[i] = filepath.Base(f.path), meansOf(t, m)
	}
	if byText {
		of := g.embeds[0]
		g.embeds[1] = func(text string) ([]float32, bool) { return of(otherText + text) }
		for i := range g.far {
			question, _ := g.embeds[0](fixedText(i))
			row, _ := g.embeds[1](fixedText(i))
			g.far[i] = cosine(question, row)
		}
	}
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(fmt.Sprintf(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, embedding vector(%d))`, width))
	for i := range fixedRows {
		db.MustExec(`INSERT INTO docs VALUES ($1, $2)`, i, fixedText(i))
	}
	db.MustExec(`INSERT INTO docs SELECT i, 'w' || i FROM generate_series(100, $1) i`, 99+g.rows-fixedRows)
	g.rig = &rig{
		t: t, db: db, slot: db.SlotName(), dir: t.TempDir(), lease: time.Hour,
		also: []string{
			"EMBEDSIDECAR_PLUGIN_DIMS=", "EMBEDSIDECAR_PLUGIN=onnx", "EMBEDSIDECAR_MODEL=" + g.models[0],
			"EMBEDSIDECAR_MODEL_DIR=" + folder,
			"EMBEDSIDECAR_ONNXRUNTIME=" + onnxtest.Library(t), "EMBEDSIDECAR_THREADS=1",
		},
	}
	g.calls = filepath.Join(g.dir, "calls")
	g.url = g.login(testenv.Owner)
	spec := pipeline.Spec{Schema: "public", Table: "docs", Columns: []string{"title"}, IntoType: pipeline.StoredVector}
	table, column := spec, spec
	table.Name, table.IntoTable = "tab", "docs_embedding"
	column.Name, column.IntoColumn = "col", "embedding"
	g.specs = []pipeline.Spec{table, column}
	if g.real {
		g.specs = g.specs[:1]
	}
	g.setUp(nil, "--config", g.config(g.specs))
	g.becomeRunRole()
	g.countLost()
	return g
}

// realModel copies the default model, or makes another one of it: with vectors of the first token alone.
func realModel(t *testing.T, folder string, other bool) {
	t.Helper()
	files := onnxtest.ModelFiles(t)
	const pooling = "1_Pooling/config.json"
	if other {
		files[pooling] = strings.NewReplacer(`cls_token": false`, `cls_token": true`, `mean_tokens": true`,
			`mean_tokens": false`).Replace(files[pooling])
	}
	onnxtest.WriteFolder(t, folder, files)
}

// really embeds texts with a real model, in a process of its own, whose plugin may be killed like others.
func (g *generationRig) really(model int, texts []string) (vectors [][]float32) {
	g.t.Helper()
	testenv.Eventually(g.t, waitTimeout, func() (bool, string) {
		c := g.start([]string{"EMBEDSIDECAR_MODEL=" + g.models[model]}, append([]string{"embed", "--quiet"}, texts...)...)
		c.wait(waitTimeout)
		printed, err := os.ReadFile(c.log)
		if err != nil {
			g.t.Fatal(err)
		}
		vectors = nil
		for line := range strings.Lines(string(printed)) {
			var vector []float32
			if json.Unmarshal([]byte(line), &vector) == nil {
				vectors = append(vectors, vector)
			}
		}
		return len(vectors) == len(texts), fmt.Sprintf("%d vectors of %d texts", len(vectors), len(texts))
	})
	return vectors
}

// start is the rig's, for several goroutines.
func (g *generationRig) start(environ []string, args ...string) *child {
	g.t.Helper()
	g.starting.Lock()
	defer g.starting.Unlock()
	return g.rig.start(environ, args...)
}

// owner runs a command as the owner of the tables, and returns its status with what it said.
func (g *generationRig) owner(args ...string) (status int, said string) {
	g.t.Helper()
	c := g.start([]string{"EMBEDSIDECAR_DATABASE_URL=" + g.login(testenv.Owner)}, args...)
	s := c.wait(waitTimeout)
	return s.ExitStatus(), c.tail()
}

// judge takes an answer: the distance of the nearest row to the text of a row that is there.
func (g *generationRig) judge(by string, far, distance float64, err error) {
	const same = 1e-4
	if g.t.Context().Err() != nil {
		return
	}
	g.asked.Add(1)
	switch {
	case err == nil && distance > same+far:
		g.wrong.Add(1)
		g.t.Errorf("%s: the nearest is %v away: the question was of the one model and the vectors of the other", by, distance)
	case err != nil:
		g.failed.Add(1)
		g.t.Errorf("%s: %v", by, err)
	}
}

var errNothing = errors.New("nothing was found")

// searches asks in a way again and again until the test ends.
func (g *generationRig) searches(ctx context.Context, by string, ask func(context.Context, string) (float64, error)) {
	for i := 0; ctx.Err() == nil; i++ {
		asking, cancel := context.WithTimeout(ctx, 2*time.Minute)
		distance, err := ask(asking, fixedText(i%fixedRows))
		cancel()
		if ctx.Err() == nil {
			g.judge(by, g.far[i%fixedRows], distance, err)
		}
		pause(ctx, 50*time.Millisecond) // a role may ask for 100 texts a second
	}
}

// bySQL asks in a session of its own.
func (g *generationRig) bySQL(sql string) func(context.Context, string) (float64, error) {
	var conn *pgx.Conn
	return func(ctx context.Context, text string) (distance float64, err error) {
		if conn == nil || conn.IsClosed() {
			if conn, err = pgx.Connect(ctx, g.db.URL(testenv.Owner)); err != nil {
				return 0, err
			}
		}
		if err = conn.QueryRow(ctx, sql, text).Scan(&distance); errors.Is(err, pgx.ErrNoRows) {
			err = errNothing
		}
		return distance, err
	}
}

// byHTTP asks a sidecar's listener, and again where that answers that it is for later, as a busy machine has it do, or
// was killed.
func (g *generationRig) byHTTP(name string, address func() string) func(context.Context, string) (float64, error) {
	return func(ctx context.Context, text string) (distance float64, err error) {
		for ctx.Err() == nil {
			var status int
			distance, status, err = g.posted(ctx, address()+"/v1/pipelines/"+name+"/search", text)
			if status != http.StatusServiceUnavailable && (status != 0 || g.killed.Load() == 0) {
				break
			}
			g.later.Add(1)
			pause(ctx, 100*time.Millisecond)
		}
		return distance, err
	}
}

// posted is one try of byHTTP.
func (g *generationRig) posted(ctx context.Context, url, text string) (distance float64, status int, err error) {
	body, err := json.Marshal(map[string]any{"text": text, "k": 3})
	if err != nil {
		return 0, status, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, status, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, status, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, status, err
	}
	var found struct {
		Rows []struct{ Distance float64 }
	}
	status = response.StatusCode
	if status != http.StatusOK {
		return 0, status, fmt.Errorf("%s: %s", response.Status, answer)
	}
	if err := json.Unmarshal(answer, &found); err != nil || len(found.Rows) == 0 {
		return 0, status, errors.Join(err, errNothing)
	}
	return found.Rows[0].Distance, status, nil
}

// writes changes rows until the context ends, and notes the longest wait.
func (g *generationRig) writes(ctx context.Context) {
	conn, err := pgx.Connect(ctx, g.db.URL(testenv.Owner))
	if err != nil {
		g.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for i := 0; ctx.Err() == nil; i++ {
		g.writing.Lock()
		began, at := time.Now(), g.switching.Load()
		_, err := conn.Exec(ctx, `INSERT INTO docs (id, title) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE
			SET title = excluded.title`, 100+rand.IntN(g.rows), fmt.Sprintf("w%dv%d", i, rand.IntN(1000)))
		if err == nil && i%7 == 0 {
			_, err = conn.Exec(ctx, `DELETE FROM docs WHERE id = $1`, 100+rand.IntN(g.rows))
		}
		g.written.Add(1)
		took := int64(time.Since(began))
		if g.longest.Store(max(g.longest.Load(), took)); at || g.switching.Load() {
			g.atSwitch.Store(max(g.atSwitch.Load(), took))
		}
		g.writing.Unlock()
		var pg *pgconn.PgError
		if err != nil && ctx.Err() == nil && !errors.As(err, &pg) {
			g.t.Error(err)
			return
		} else if err != nil && ctx.Err() == nil {
			g.t.Errorf("a writer: %v", err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// settle waits until the generations of both pipelines have the vectors of their texts, by the models that they should
// be of, while nobody writes.
func (g *generationRig) settle(places map[string]int) {
	g.t.Helper()
	g.writing.Lock()
	defer g.writing.Unlock()
	testenv.Eventually(g.t, waitTimeout, func() (bool, string) {
		for place, model := range places {
			if g.real && strings.HasPrefix(place, "docs.") {
				continue
			}
			if wrong := g.wrongIn(place, model); wrong != "" {
				return false, fmt.Sprintf("%s by model %d: %s", place, model+1, wrong)
			}
		}
		return true, ""
	})
}

// wrongIn looks for a row that has not the vector of its text. A real model is slow: all rows are looked at by the hash
// of the text that their vector was made of, and 100 by the vector.
func (g *generationRig) wrongIn(place string, model int) string {
	g.t.Helper()
	table, column, _ := strings.Cut(place, ".")
	join, of, some := "", "d.", ""
	if table != "docs" {
		join, of = " FULL JOIN "+table+" AS v USING (id)", "v."
	}
	if g.real {
		if n := g.count(`SELECT count(*) FROM docs AS d` + join + ` WHERE (v.text_hash = sha256(convert_to(title, 'UTF8')))
			IS NOT TRUE`); n > 0 {
			return fmt.Sprintf("%d rows have no vector, or one of another text, or are gone", n)
		}
		some = " ORDER BY random() LIMIT 100"
	}
	type row struct {
		ID            int64
		Title, Vector *string
	}
	rows := testenv.Rows[row](g.db, `SELECT id, title, `+of+column+`::text AS vector FROM docs AS d`+join+some)
	texts := make([]string, len(rows))
	for i, r := range rows {
		switch {
		case r.Title == nil:
			return fmt.Sprintf("row %d is gone and has a vector", r.ID)
		case r.Vector == nil:
			return fmt.Sprintf("row %d has no vector", r.ID)
		}
		texts[i] = *r.Title
	}
	var wanted [][]float32
	if g.real {
		wanted = g.really(model, texts)
	}
	for n, r := range rows {
		var got, want []float32
		if g.real {
			want = wanted[n]
		} else {
			want, _ = g.embeds[model](texts[n])
		}
		if err := json.Unmarshal([]byte(*r.Vector), &got); err != nil || len(got) != len(want) {
			return fmt.Sprintf("row %d: %s", r.ID, *r.Vector)
		}
		for i := range want {
			if d := want[i] - got[i]; d > 1e-4 || d < -1e-4 {
				return fmt.Sprintf("row %d: %v, want %v", r.ID, got, want)
			}
		}
	}
	return ""
}

// TestP3_NoAnswerIsOfTwoModels: under a writer and with searches by every door, the model of a table and of a column is
// changed, switched, rolled back, switched and the old one dropped: no search fails, and none compares a question of
// the one model with vectors of the other. Then the same with sidecars and commands that are killed at any moment.
func TestP3_NoAnswerIsOfTwoModels(t *testing.T) {
	t.Parallel()
	newGenerationRig(t, false).tells()
}

// TestP3_NoAnswerIsOfTwoTexts: the same where the text of one model is changed.
func TestP3_NoAnswerIsOfTwoTexts(t *testing.T) {
	t.Parallel()
	newGenerationRig(t, true).tells()
}

func (g *generationRig) tells() {
	t := g.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	run := func(lease string) *child {
		return g.start(nil, "run", "--no-init", "--set", "lease="+lease, "--http", "127.0.0.1:0", "--tokens-file", g.tokens())
	}
	first, second := run("10s"), run("10s") // nobody is killed at first: a scan loses no page by a machine that is busy
	addresses := [2]atomic.Value{}
	addresses[0].Store(first.address())
	addresses[1].Store(second.address())
	at := func() string { return addresses[rand.IntN(2)].Load().(string) } //nolint:forcetypeassert // a string
	g.settle(map[string]int{"docs_embedding.embedding": 0, "docs.embedding": 0})
	for by, ask := range map[string]func(context.Context, string) (float64, error){
		"search(tab)": g.bySQL(`SELECT distance FROM embedsidecar.search('tab', $1, 3, '60 s') LIMIT 1`),
		"search(col)": g.bySQL(`SELECT distance FROM embedsidecar.search('col', $1, 3, '60 s') LIMIT 1`),
		"SELECT of the table": g.bySQL(`SELECT embedding <=> (SELECT embedsidecar.embed($1, 'tab', '60 s')::vector)
			FROM docs_embedding ORDER BY 1 LIMIT 1`),
		"SELECT of the column": g.bySQL(`SELECT embedding <=> (SELECT embedsidecar.embed($1, 'col', '60 s')::vector)
			FROM docs ORDER BY 1 LIMIT 1`),
		"HTTP(tab)": g.byHTTP("tab", at), "HTTP(col)": g.byHTTP("col", at),
	} {
		if !g.real || !strings.Contains(by, "col") {
			all.Go(func() { g.searches(ctx, by, ask) })
		}
	}
	all.Go(func() { g.writes(ctx) })
	g.story("calm")
	t.Logf("nothing killed: longest wait of a writer %s, of it while a switch or rollback ran %s",
		time.Duration(g.longest.Load()), time.Duration(g.atSwitch.Load()))
	if t.Failed() {
		return
	}

	// Now with kills, there and back: what serves is the second model, and the first is changed to.
	children := [2]*child{first, second}
	killing, calm := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() {
		// More and more rarely: on a busy machine a sidecar has not even begun to work after seconds.
		for i := 0; killing.Err() == nil; i++ {
			rest := time.Duration(300+rand.IntN(1500)) * time.Millisecond * time.Duration(10+i%20) / 10
			if g.real { // it takes its time to load
				rest *= 2
			}
			pause(killing, rest)
			if killing.Err() != nil {
				return
			}
			testenv.Eventually(t, waitTimeout, func() (bool, string) { // somebody is left to answer
				return g.count(`SELECT count(*) FROM embedsidecar.workers WHERE runs`) > 1, "one sidecar runs"
			})
			g.killed.Add(1)
			if plugins := g.plugins(); i%4 == 3 && len(plugins) > 0 {
				_ = syscall.Kill(plugins[rand.IntN(len(plugins))], syscall.SIGKILL)
				continue
			}
			c := children[i%2]
			_ = c.cmd.Process.Kill()
			<-c.done
			children[i%2] = run("1s")
			addresses[i%2].Store(children[i%2].address())
		}
	})
	for g.killed.Load() < int64(g.kills) && !t.Failed() {
		g.models[0], g.models[1], g.embeds[0], g.embeds[1] = g.models[1], g.models[0], g.embeds[1], g.embeds[0]
		g.turned = !g.turned
		g.story("killed")
	}
	calm()
	killer.Wait()
	g.settle(map[string]int{"docs_embedding.embedding": 1, "docs.embedding": 1})
	stop()
	all.Wait()
	g.caughtUp()
	t.Logf("%d rows, %d answers, %d for later, %d kills, longest wait of a writer %s, of it while a switch or rollback ran %s",
		g.rows, g.asked.Load(), g.later.Load(), g.killed.Load(), time.Duration(g.longest.Load()),
		time.Duration(g.atSwitch.Load()))
}

// story changes the model of both pipelines there, back, there again, and drops the old one. Commands are killed in
// the second one, and run again.
func (g *generationRig) story(kind string) {
	g.t.Helper()
	before := g.written.Load()
	for _, spec := range g.specs {
		name := spec.Name
		args := []string{"model", "change", name, "--to", g.models[1]}
		if g.byText {
			args = []string{"model", "change", name, "--beside", "--config", g.changed()}
		}
		g.acts(kind, "made|already_under_way", args...)
	}
	g.settle(map[string]int{
		"docs_embedding.embedding": 0, "docs.embedding": 0, "docs_embedding__next.embedding": 1, "docs.embedding__next": 1,
	})
	serve := func(verb, word string) {
		g.switching.Store(true)
		defer g.switching.Store(false)
		for _, spec := range g.specs {
			g.acts(kind, word, "model", verb, spec.Name)
		}
	}
	serve("switch", "switched")
	g.settle(map[string]int{
		"docs_embedding.embedding": 1, "docs.embedding": 1, "docs_embedding__previous.embedding": 0,
		"docs.embedding__previous": 0,
	})
	serve("rollback", "rolled_back")
	g.settle(map[string]int{
		"docs_embedding.embedding": 0, "docs.embedding": 0, "docs_embedding__next.embedding": 1, "docs.embedding__next": 1,
	})
	serve("switch", "switched")
	serve("drop-old", "dropped_previous|nothing_to_drop")
	g.settle(map[string]int{"docs_embedding.embedding": 1, "docs.embedding": 1})
	if kind == "calm" {
		g.embeddedOnce(g.written.Load() - before)
	}
}

// embeddedOnce checks that the texts of what serves now have gone to the embedder once, given how many versions of rows
// were written meanwhile. Those whose short lease was lost go there again.
func (g *generationRig) embeddedOnce(written int64) {
	g.t.Helper()
	type made struct {
		Name     string
		Embedded int64
	}
	testenv.Eventually(g.t, waitTimeout, func() (bool, string) { // it is written down once a minute
		all := int64(0)
		for _, m := range testenv.Rows[made](g.db, `SELECT name, coalesce(s.texts_embedded, 0) AS embedded
			FROM embedsidecar.pipeline LEFT JOIN embedsidecar.spent AS s USING (pipeline_id)`) {
			// Two sidecars may embed a change at the same moment: one by its scan, and one that streams.
			lost := g.lost()
			if most := int64(g.rows+lost) + written + written/10; m.Embedded > most {
				g.t.Errorf("%s: %d texts embedded of %d rows and %d changes, %d lost", m.Name, m.Embedded, g.rows, written, lost)
			}
			all += m.Embedded
		}
		return all >= int64(g.rows), fmt.Sprintf("%d texts were embedded", all)
	})
}

// changed is a configuration with the text that does not serve.
func (g *generationRig) changed() string {
	specs := slices.Clone(g.specs)
	for i := range specs {
		if !g.turned {
			specs[i].Columns, specs[i].Text = nil, "'"+otherText+"' || title"
		}
	}
	return g.config(specs)
}

// acts has the owner run a command until it ends well.
func (g *generationRig) acts(kind, words string, args ...string) {
	g.t.Helper()
	testenv.Eventually(g.t, waitTimeout, func() (bool, string) {
		if kind == "killed" && rand.IntN(2) == 0 {
			c := g.start([]string{"EMBEDSIDECAR_DATABASE_URL=" + g.login(testenv.Owner)}, args...)
			pause(g.t.Context(), time.Duration(rand.IntN(1000))*time.Millisecond)
			c.signal(9)
			<-c.done
		}
		status, said := g.owner(args...)
		for word := range strings.SplitSeq(words, "|") {
			if status == 0 && strings.Contains(said, word) {
				return true, ""
			}
		}
		return false, said
	})
}
