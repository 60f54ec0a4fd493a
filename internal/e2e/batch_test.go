//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// batchPlaces are those between the steps of a batch job, in their order.
var batchPlaces = []string{
	"jobs/closed", "jobs/written", "jobs/submitted", "jobs/noted", "jobs/stored", "jobs/fetched", "jobs/ended",
	"jobs/released", "worker/after-commit",
}

// impatient has a job that the provider does not know be submitted again at once.
const impatient = failpoint.Env + "=jobs/patience-is-over=error"

// batchRig is a rig whose provider has batch jobs.
type batchRig struct {
	*remoteRig
	provider *remotetest.Server
	jobs     *remotetest.Batches
	counted  map[string]int
}

const batchRows = 700 // more than a page of a scan, and of results

func newBatchRig(t *testing.T, major int, jobs *remotetest.Batches, pipeline string) *batchRig {
	t.Helper()
	provider := &remotetest.Server{Dialect: "openai", Dims: dims, Key: providerKey, Batches: jobs}
	form := "openai"
	if jobs.Mistral {
		form = "mistral"
	}
	db := testenv.DB(t, testenv.Major(major), testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id int PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO public.docs SELECT i, 'Document ' || i || ' is about boats. The harbour has a crane for them.'
		FROM generate_series(1, $1::int) AS i`, batchRows)
	return &batchRig{newRemoteRigOn(t, db, served(t, provider), ", price: 1, batches: "+form,
		", batch: {when: backfill, over: 300}"+pipeline), provider, jobs, map[string]int{}}
}

// anew removes all vectors and asks for a backfill. It returns when what was paid for until now is counted.
func (r *batchRig) anew() {
	r.t.Helper()
	r.db.MustExecSuper(`TRUNCATE embedsidecar.ledger, public.docs_embedding`)
	r.db.MustExecSuper(`SELECT embedsidecar.backfill('docs')`)
	r.counted = r.paid()
}

// paid counts how often each text was embedded, by a job or at once.
func (r *batchRig) paid() map[string]int {
	paid := r.provider.Texts()
	for text, n := range r.jobs.Texts() {
		paid[text] += n
	}
	return paid
}

// once checks that each row's text was paid for once since anew. One that has changed just before its job was submitted
// is in the job, and a live change does not wait for that.
func (r *batchRig) once(when string) {
	r.t.Helper()
	now := r.paid()
	for _, text := range testenv.Values[string](r.db, `SELECT body FROM public.docs`) {
		if n := now[text] - r.counted[text]; n != 1 && (n != 2 || !strings.HasPrefix(text, "changed")) {
			r.t.Fatalf("%s: %q was paid for %d times", when, text, n)
		}
	}
}

// caughtUp waits until all is done, jobs included.
func (r *batchRig) caughtUp(c *child) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		left := r.count(`SELECT (SELECT count(*) FROM embedsidecar.batch_job) + (SELECT count(*) FROM embedsidecar.task)
			+ (SELECT count(*) FROM embedsidecar.scan WHERE phase <> 'done')`)
		return left == 0, fmt.Sprintf("%d jobs, tasks and scans left\n%s", left, c.tail())
	})
	if n := r.count(`SELECT (SELECT count(*) FROM embedsidecar.batch_item) + (SELECT count(*) FROM embedsidecar.batch_text)`); n > 0 {
		r.t.Errorf("%d rows of jobs are left", n)
	}
}

// TestBatch_KilledAtEveryStep: a sidecar is killed after each step of a job, a row changes and one goes meanwhile, and
// another sidecar ends it. Every row has the vector of its text, and no text was paid for twice.
func TestBatch_KilledAtEveryStep(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		r := newBatchRig(t, major, &remotetest.Batches{}, "")
		for i, name := range batchPlaces {
			if i > 0 {
				r.anew()
			}
			p := place{name: name, also: "jobs/patience-is-over=error"}
			c := r.run(append(r.remote(), fmt.Sprintf("%s=%s=kill@1;%s", failpoint.Env, p.name, p.also))...)
			if s := c.wait(waitTimeout); !s.Signaled() {
				t.Fatalf("%s: it ended with %v:\n%s", name, c.cmd.ProcessState, c.tail())
			}
			before := len(r.jobs.Jobs())
			r.db.MustExec(`UPDATE public.docs SET body = 'changed ' || $1::int WHERE id = $1::int + 10`, i)
			r.db.MustExec(`DELETE FROM public.docs WHERE id = $1::int + 100`, i)
			c = r.run(append(r.remote(), impatient)...)
			r.caughtUp(c)
			c.terminate()
			r.once("killed at " + name)
			if more := len(r.jobs.Jobs()) - before; name != "jobs/closed" && name != "jobs/written" && more > 0 {
				t.Errorf("killed at %s: %d more jobs were made", name, more)
			}
		}
		r.provenRemote(r.provider)
		r.keyIsNowhere()
	})
}

// TestP8_ABatchJobThatARestoreForgotIsNotPaidTwice: the database is restored to before the submission of a job, which
// the provider has.
func TestP8_ABatchJobThatARestoreForgotIsNotPaidTwice(t *testing.T) {
	t.Parallel()
	t.Run("nor one whose budget is spent", writtenWithoutABudget)
	r := newBatchRig(t, 0, &remotetest.Batches{}, "")
	c := r.run(append(r.remote(), failpoint.Env+"=jobs/noted=kill@1")...)
	if s := c.wait(waitTimeout); !s.Signaled() {
		t.Fatalf("it ended with %v:\n%s", c.cmd.ProcessState, c.tail())
	}
	r.db.MustExecSuper(`DELETE FROM embedsidecar.batch_text`)
	r.db.MustExecSuper(`UPDATE embedsidecar.batch_job SET state = 'closed', provider_id = NULL, texts = 0, tokens = 0`)
	c = r.run(r.remote()...)
	r.caughtUp(c)
	c.terminate()
	r.once("restored")
	if n := len(r.jobs.Jobs()); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
	r.provenRemote(r.provider)
}

// TestBatch_BadJobs: jobs that fail, expire, are forgotten by the provider, or whose answers come in another order,
// twice, for nobody, with errors, of another width, or only half. What has no result is embedded at once.
func TestBatch_BadJobs(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		var (
			state atomic.Pointer[string]
			spoil atomic.Pointer[func([]string) []string]
		)
		jobs := spoiled(&state, &spoil)
		none := ""
		state.Store(&none)
		r := newBatchRig(t, major, jobs, "")
		r.leisurely()
		half := func(lines []string) []string { return lines[:len(lines)/2] }
		for i, c := range []struct {
			name, state string
			lines       func([]string) []string
			atOnce      int // texts that are embedded without a job
			says        string
		}{
			{"whole", "", nil, 0, "ended"},
			{"failed", "failed", nil, batchRows, "token_limit_exceeded"},
			{"expired", "expired", half, batchRows / 2, "350 of 700 texts have no result: expired"},
			{"half a file", "", func(lines []string) []string {
				lines = half(lines)
				return append(lines, lines[0][:40])
			}, batchRows / 2, "350 of 700 texts have no result"},
			{"twice, and for nobody", "", func(lines []string) []string {
				return append(append(lines, lines...), strings.Replace(lines[0], `"custom_id":"`, `"custom_id":"0000`, 1),
					`null`, `[]`, `not JSON`, `{"custom_id":5}`, ``)
			}, 0, "ended"},
			{"errors inside", "", func(lines []string) []string {
				lines[0] = strings.Replace(lines[0], `"status_code":200`, `"status_code":429`, 1)
				lines[1] = lines[1][:strings.Index(lines[1], `"response"`)] + `"response":null,"error":{"code":"x"}}`
				lines[2] = strings.Replace(lines[2], `"embedding":"`, `"embedding":"AAAA`, 1)
				lines[3] = strings.Replace(lines[3], `"embedding":"`, `"embedding":"!`, 1)
				return lines
			}, 4, "4 of 700 texts have no result"},
		} {
			if i > 0 {
				r.anew()
			}
			state.Store(&c.state)
			spoil.Store(nil)
			if c.lines != nil {
				spoil.Store(&c.lines)
			}
			before := sum(r.provider.Texts())
			run := r.run(r.remote()...)
			r.caughtUp(run)
			run.terminate()
			if n := sum(r.provider.Texts()) - before; n != c.atOnce {
				t.Errorf("%s: %d texts were embedded at once, want %d", c.name, n, c.atOnce)
			}
			if !run.said(c.says) {
				t.Errorf("%s: its log does not say %q:\n%s", c.name, c.says, run.tail())
			}
			r.provenRemote(r.provider)
		}

		running := "in_progress"
		state.Store(&running)
		r.anew()
		run := r.run(r.remote()...)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			run.mustLive()
			return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'running'`) > 0, run.tail()
		})
		r.db.MustExec(`INSERT INTO public.docs VALUES (9999, 'live')`) // is not kept waiting
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return r.count(`SELECT count(*) FROM public.docs_embedding WHERE id = 9999`) > 0, run.tail()
		})
		status := r.start(r.remote(), "status")
		status.wait(waitTimeout)
		if !status.said("batch job") || !status.said("700 texts") {
			t.Errorf("status does not tell of the job:\n%s", status.tail())
		}
		broken := "broken"
		state.Store(&broken)
		testenv.Eventually(t, waitTimeout, func() (bool, string) { // and why it waits
			run.mustLive()
			return r.count(`SELECT count(*) FROM embedsidecar.status, embedsidecar.batch_jobs(pipeline_id) AS j
				WHERE j.message <> ''`) > 0, run.tail()
		})
		state.Store(&running)
		for _, j := range jobs.Jobs() {
			j.Lost = true
		}
		r.caughtUp(run)
		run.terminate()
		r.provenRemote(r.provider)
		if !run.said("does not know the job any more") {
			t.Errorf("its log does not say so:\n%s", run.tail())
		}
	})
}

// spoiled are jobs in a state, with results that somebody spoils. In the state "broken" nobody answers.
func spoiled(state *atomic.Pointer[string], spoil *atomic.Pointer[func([]string) []string]) *remotetest.Batches {
	return &remotetest.Batches{
		State: func(*remotetest.BatchJob) string {
			if *state.Load() == "broken" {
				panic(http.ErrAbortHandler)
			}
			return *state.Load()
		},
		Spoil: func(_ *remotetest.BatchJob, lines []string) []string {
			if f := spoil.Load(); f != nil {
				return (*f)(lines)
			}
			return lines
		},
	}
}

// crane ends each text of a row.
const crane = "The harbour has a crane for them."

// sum counts texts of rows.
func sum(counts map[string]int) (n int) {
	for text, more := range counts {
		if strings.HasPrefix(text, "Document") || text == crane {
			n += more
		}
	}
	return n
}

// TestBatch_SmallBackfillsAndChunks: a backfill of few rows makes no job, and chunks have one, at Mistral. A budget
// holds for jobs by their own price.
func TestBatch_SmallBackfillsAndChunks(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		r := newBatchRig(t, major, &remotetest.Batches{Mistral: true},
			", chunking: {strategy: sentences, tokens: 16}, budget: {money: 1000}")
		r.leisurely()
		c := r.run(r.remote()...)
		r.caughtUp(c)
		if jobs, sent := len(r.jobs.Jobs()), sum(r.provider.Texts()); jobs != 1 || sent != 0 {
			t.Errorf("%d jobs, and %d texts at once", jobs, sent)
		}
		tokens := testenv.Value[float64](r.db, `SELECT sum(tokens) FROM embedsidecar.spending`)
		money := testenv.Value[float64](r.db, `SELECT sum(money) FROM embedsidecar.spending`)
		if want := tokens / 1e6 / 2; tokens == 0 || money < want*0.999 || money > want*1.001 {
			t.Errorf("%g is counted for %g tokens, want half the price: %g", money, tokens, want)
		}
		if n := r.count(`SELECT count(*) FROM embedsidecar.hold`); n > 0 {
			t.Errorf("%d calls are still held", n)
		}
		c.terminate()
		r.db.MustExec(`DELETE FROM public.docs WHERE id > 200`)
		c = r.run(r.remote()...)
		r.caughtUp(c)
		r.anew()
		r.caughtUp(c)
		c.terminate()
		if jobs := len(r.jobs.Jobs()); jobs != 1 {
			t.Errorf("%d jobs, and a small backfill needs none", jobs)
		}
		r.start(r.remote(), "verify").wait(waitTimeout)
	})
}

// TestP8_ABatchJobWaitsForTheBudgetOfAnother: a job takes no more than the budget has room for, and what it leaves
// waits until it is known what the job has cost. It is not embedded meanwhile, at the full price.
func TestP8_ABatchJobWaitsForTheBudgetOfAnother(t *testing.T) {
	t.Parallel()
	jobs := &remotetest.Batches{State: func(*remotetest.BatchJob) string { return "in_progress" }}
	r := newBatchRig(t, 0, jobs, ", budget: {money: 0.0035}") // 7000 tokens
	c := r.run(r.remote()...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'closed' AND message <> ''`) > 0, c.tail()
	})
	if n := r.count(`SELECT count(*) FROM embedsidecar.batch_item AS i JOIN embedsidecar.batch_job AS j USING (job_id)
		WHERE j.state = 'ended'`); n > 0 {
		t.Errorf("%d rows were taken out of the job that waits", n)
	}
	c.terminate()
	if jobs, sent := len(r.jobs.Jobs()), sum(r.provider.Texts()); jobs != 1 || sent != 0 {
		t.Errorf("%d jobs, and %d texts at once", jobs, sent)
	}
}

// writtenWithoutABudget: the budget is spent before a job ends. Its vectors are written all
// the same, as they are paid for. A row that has changed meanwhile waits for the budget.
func writtenWithoutABudget(t *testing.T) {
	t.Helper()
	t.Parallel()
	var ends atomic.Bool
	jobs := &remotetest.Batches{State: func(*remotetest.BatchJob) string {
		if ends.Load() {
			return ""
		}
		return "in_progress"
	}}
	r := newBatchRig(t, 0, jobs, ", budget: {money: 1}")
	c := r.run(r.remote()...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'running'`) ==
			r.count(`SELECT greatest(count(*), 1) FROM embedsidecar.batch_job`), c.tail()
	})
	c.terminate()
	rows := r.count(`SELECT count(*) FROM embedsidecar.batch_item`)
	r.db.MustExecSuper(`UPDATE embedsidecar.spending SET money = 2`)
	r.db.MustExec(`UPDATE public.docs SET body = 'Document 7, changed since' WHERE id = 7`)
	ends.Store(true)
	c = r.run(r.remote()...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return r.count(`SELECT count(*) FROM public.docs_embedding`) >= rows-1, c.tail()
	})
	if sent := sum(r.provider.Texts()); sent != 0 {
		t.Errorf("%d texts were embedded without a budget", sent)
	}
	r.db.MustExecSuper(`UPDATE embedsidecar.spending SET money = 0`)
	r.caughtUp(c)
	c.terminate()
	if n := sum(r.paid()); n != batchRows+1 {
		t.Errorf("%d texts were paid for, want %d", n, batchRows+1)
	}
	r.provenRemote(r.provider)
}

// TestBatch_NobodyTellsOfAJob: the provider calls the number of a job wrong, or the model has another server by then,
// which has no jobs. Its rows are embedded in the usual way.
func TestBatch_NobodyTellsOfAJob(t *testing.T) {
	t.Parallel()
	jobs := &remotetest.Batches{State: func(*remotetest.BatchJob) string { return "in_progress" }}
	r := newBatchRig(t, testenv.Majors(t)[0], jobs, "")
	begun := func() *child {
		t.Helper()
		c := r.run(r.remote()...)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'running'`) > 0, c.tail()
		})
		return c
	}
	c := begun()
	for _, j := range jobs.Jobs() {
		j.Refused = true
	}
	r.caughtUp(c)
	c.terminate()
	r.provenRemote(r.provider)

	r.anew()
	begun().terminate()
	file := filepath.Join(r.dir, "c.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.NewReplacer("batches: openai", "batches: none",
			", batch: {when: backfill, over: 300}", "").Replace(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.url, r.stream = r.login(testenv.Owner), r.login(testenv.Owner)
	r.setUp(r.remote())
	c = r.run(r.remote()...)
	r.caughtUp(c)
	c.terminate()
	r.provenRemote(r.provider)
}

// TestBatch_EndsWithItsPipeline: when the pipeline is removed its job is cancelled at the provider.
func TestBatch_EndsWithItsPipeline(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		jobs := &remotetest.Batches{State: func(*remotetest.BatchJob) string { return "in_progress" }}
		r := newBatchRig(t, major, jobs, "")
		c := r.run(append(r.remote(), failpoint.Env+"=jobs/cancelled=kill")...)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'running'`) > 0, c.tail()
		})
		r.db.MustExecSuper(`DELETE FROM embedsidecar.pipeline`)
		if s := c.wait(waitTimeout); !s.Signaled() {
			t.Fatalf("it ended with %v:\n%s", c.cmd.ProcessState, c.tail())
		}
		r.url, r.stream = r.login(testenv.Owner), r.login(testenv.Owner)
		file := filepath.Join(r.dir, "c.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		db := r.db // of another pipeline: a sidecar without one does not start
		db.MustExec(`CREATE TABLE public.others (id int PRIMARY KEY, body text)`)
		other := strings.NewReplacer("name: docs", "name: others", "public.docs", "public.others", "docs_embedding",
			"others_embedding").Replace(string(text))
		if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		r.setUp(r.remote())
		c = r.run(r.remote()...)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return jobs.Jobs()[0].Cancelled && r.count(`SELECT count(*) FROM embedsidecar.batch_job`) == 0, c.tail()
		})
		c.terminate()
	})
}

// TestBatch_EndsWithUninstall: uninstall has the provider give up the jobs of what it takes away, or names those
// that it cannot; a dry run only tells.
func TestBatch_EndsWithUninstall(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		r := newBatchRig(t, major, &remotetest.Batches{State: func(*remotetest.BatchJob) string { return "in_progress" }}, "")
		stranger := filepath.Join(r.dir, "other.yaml")
		if err := os.WriteFile(stranger, []byte("models: [{name: near, dialect: ollama, model: m, dims: 8}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			args      []string
			config    string
			says      string
			cancelled bool
		}{
			{[]string{"docs"}, "", `batch job batch_1 of pipeline "docs" would be cancelled`, false},
			{[]string{"docs", "--yes"}, "", `batch job batch_1 of pipeline "docs" is cancelled`, true},
			{[]string{"--yes"}, stranger, `batch job batch_2 of pipeline "docs" is not cancelled`, false},
			{[]string{"--yes"}, "", `batch job batch_3 of pipeline "docs" is cancelled`, true},
		} {
			run, owner := r.url, r.login(testenv.Owner)
			if i != 1 { // the job of the step before it is still there
				r.url, r.stream = owner, owner
				r.setUp(r.remote())
				c := r.run(r.remote()...)
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					c.mustLive()
					return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'running'
						AND provider_id = 'batch_' || $1::int`, max(i, 1)) == 1, c.tail()
				})
				c.terminate()
			}
			env := r.remote()
			if step.config != "" {
				env = append(env, "EMBEDSIDECAR_CONFIG="+step.config)
			}
			r.url = owner
			if i == 0 { // in a copy, these are the jobs of the original
				r.db.MustExecSuper(`UPDATE embedsidecar.lsn_checkpoint SET system_id = '1' || system_id`)
				c := r.start(env, "uninstall")
				if status := c.wait(waitTimeout).ExitStatus(); status != 0 || c.said("batch job") {
					t.Errorf("in a copy it ended with %d:\n%s", status, c.tail())
				}
				r.db.MustExecSuper(`UPDATE embedsidecar.lsn_checkpoint SET system_id = substr(system_id, 2)`)
			}
			c := r.start(env, append([]string{"uninstall"}, step.args...)...)
			status := c.wait(waitTimeout).ExitStatus()
			last := r.jobs.Jobs()[len(r.jobs.Jobs())-1]
			if status != 0 || !c.said(step.says) || last.Cancelled != step.cancelled {
				t.Fatalf("%v ended with %d, cancelled %t:\n%s", step.args, status, last.Cancelled, c.tail())
			}
			r.url = run
		}
	})
}

// TestBatch_TwoSidecars: one of two has a job in hand; when it is killed the other takes the job to its end.
func TestBatch_TwoSidecars(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		var ends atomic.Bool
		jobs := &remotetest.Batches{State: func(*remotetest.BatchJob) string {
			return map[bool]string{false: "in_progress"}[ends.Load()]
		}}
		r := newBatchRig(t, major, jobs, "")
		r.counted = map[string]int{}
		both := [2]*child{r.run(r.remote()...), r.run(r.remote()...)}
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			both[0].mustLive()
			both[1].mustLive()
			return r.count(`SELECT count(*) FROM embedsidecar.batch_job WHERE state = 'running'`) == 1 &&
					r.count(`SELECT count(*) FROM embedsidecar.worker`) == 2 && len(jobs.Jobs()) == 1 && jobs.Jobs()[0].Asked > 1,
				both[0].tail() + both[1].tail()
		})
		at := 0
		if both[1].said("batch job submitted") {
			at = 1
		}
		if both[0].said("batch job submitted") == both[1].said("batch job submitted") {
			t.Errorf("not one of the two has submitted it:\n%s\n%s", both[0].tail(), both[1].tail())
		}
		both[at].kill()
		ends.Store(true)
		other := both[1-at]
		r.caughtUp(other)
		r.once("after the kill")
		other.terminate()
		if n := len(jobs.Jobs()); n != 1 {
			t.Errorf("%d jobs", n)
		}
		r.provenRemote(r.provider)
	})
}

// TestBatch_MoreThanAJobHolds: rows with more text than one job holds have several, each row in one of them.
func TestBatch_MoreThanAJobHolds(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		r := newBatchRig(t, major, &remotetest.Batches{}, "")
		r.leisurely()
		const rows, kilobytes = 300, 60 // 18 MB in all
		r.db.MustExec(`UPDATE public.docs SET body = body || repeat(' pier', $2::int * 200) WHERE id <= $1::int`, rows, kilobytes)
		c := r.run(r.remote()...)
		r.caughtUp(c) // all of them are live changes
		c.terminate()
		r.anew()
		before := len(r.jobs.Jobs())
		c = r.run(r.remote()...)
		r.caughtUp(c)
		c.terminate()
		want := before + rows*kilobytes*1000/embed.MaxJobBytes + 1
		if jobs := len(r.jobs.Jobs()); jobs != want {
			t.Errorf("%d jobs of %d texts, want %d:\n%s", jobs, sum(r.jobs.Texts()), want, c.tail())
		}
		r.once("in several jobs")
		r.provenRemote(r.provider)
	})
}

// TestBatch_NeedsAProviderWithJobs: a model that has none is refused when it is set up, with a way out.
func TestBatch_NeedsAProviderWithJobs(t *testing.T) {
	t.Parallel()
	r := newRemoteRig(t, served(t, &remotetest.Server{Dialect: "openai", Dims: dims, Key: providerKey}))
	r.url = r.login(testenv.Owner)
	file := filepath.Join(r.dir, "c.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "{table: docs_embedding}",
		"{table: docs_embedding}, batch: {when: backfill}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := r.start(r.remote(), "init")
	if s := c.wait(waitTimeout); s.ExitStatus() == 0 || !c.said("batch jobs are configured") ||
		!c.said("leave out batch") {
		t.Errorf("it ended with %d:\n%s", s.ExitStatus(), c.tail())
	}
}
