// Package jobs has backfills embedded by batch jobs of a model's provider, which take hours and cost less. A scan
// gathers rows in place of tasks (worker.Jobs). Their texts are read, their hashes are written down, and only then are
// they submitted. When a job has ended its vectors are stored by the hashes of their texts, and its rows become tasks:
// these look, decide and write as all tasks do, and find the vectors here. So a row that has changed meanwhile, or
// whose text has no result, is embedded in the usual way, and nothing of a job is written past the ledger.
//
// Every step begins with what the step before has committed. Before a job is submitted the provider is asked for it by
// its nonce: a crash, or a restore of the database, may have forgotten the submission.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Options are what the jobs of a pipeline need.
type Options struct {
	Pipeline *pipeline.Pipeline
	DB       database.DB
	Service  *embed.Service
	ID       int64 // of this sidecar in the table worker
	Price    pipeline.Price
	Backlog  func(ctx context.Context) (open int, err error) // of the pipeline's low tasks
	Wake     func()                                          // there are tasks
	Log      *slog.Logger
}

// Jobs are the batch jobs of a pipeline. They implement worker.Jobs.
type Jobs struct {
	o      Options
	worker *worker.Worker
}

var _ worker.Jobs = (*Jobs)(nil)

// New returns the jobs of a pipeline.
func New(o Options) *Jobs { return &Jobs{o: o} }

// Pauses.
const (
	idle      = 5 * time.Second
	soon      = time.Second
	longest   = time.Minute // between two looks at a job
	patience  = 12          // times, idle apart, that a provider must not know a job before it is submitted again
	mostTries = 10
)

// Released is how many tasks of a pipeline wait at most before further rows of jobs become some.
const Released = 4 * rows.PageRows

// Run takes jobs to their end until ctx ends.
func (j *Jobs) Run(ctx context.Context, w *worker.Worker) error {
	j.worker = w
	for ctx.Err() == nil {
		pause := soon
		job, err := j.take(ctx)
		switch {
		case err == nil && job == nil:
			if open, _, _, err := j.Open(ctx); err == nil && open == 0 {
				pause = idle
			}
		case err == nil:
			if err = j.step(ctx, job); err == nil {
				pause = 0
			} else if ctx.Err() == nil {
				err = errors.Join(err, j.later(ctx, job, shortened(err)))
			}
		}
		if err != nil && ctx.Err() == nil {
			j.o.Log.WarnContext(ctx, "batch job waits", "pipeline", j.o.Pipeline.Name, "error", err)
		}
		if pause > 0 {
			sleep.For(ctx, pause)
		}
	}
	return nil
}

// job is one that is in hand.
type job struct {
	id       int64
	state    string
	nonce    string
	provider string
	texts    int
	tokens   int64
	hold     *int64
	tries    int
	age      float64 // seconds in its state
}

// step does what is next for a job.
func (j *Jobs) step(ctx context.Context, b *job) error {
	switch b.state {
	case "closed":
		return j.submit(ctx, b)
	case "submitting":
		return j.find(ctx, b)
	case "running":
		return j.poll(ctx, b)
	}
	return j.release(ctx, b)
}

// later has a job be looked at again after a pause that grows. What a person would have to change, or what is wrong
// with the job itself, ends it after a while.
func (j *Jobs) later(ctx context.Context, b *job, message string) error {
	pause := min(time.Second<<min(b.tries, 10), longest)
	tries := b.tries + 1
	if b.state == "submitting" { // they are of those that the provider has answered
		tries = b.tries
	}
	return j.move(ctx, b, change{to: b.state, pause: pause, tries: tries, message: message})
}

// lasting reports whether a step fails again as long as nobody changes something.
func lasting(err error) bool {
	whole, is := errors.AsType[*embed.Error](err)
	return is && (whole.Class == embed.Configuration || whole.Class == embed.Data)
}

// batcher returns what makes batch jobs, or nil. A job whose model has none, or none any more, ends.
func (j *Jobs) batcher(ctx context.Context, b *job) (embed.Batcher, error) {
	provider, err := j.o.Service.Batcher(ctx)
	if errors.Is(err, embed.ErrNoBatches) {
		return nil, j.end(ctx, b, nil, err.Error())
	}
	return provider, err
}

// submit reads the texts of a job, writes down their hashes and submits them.
func (j *Jobs) submit(ctx context.Context, b *job) error {
	if !j.o.Pipeline.Batch.On() {
		return j.end(ctx, b, nil, "batch jobs are switched off")
	}
	provider, err := j.batcher(ctx, b)
	if provider == nil {
		return err
	}
	texts, err := j.gatherTexts(ctx, b)
	if err != nil || texts == nil {
		return err
	}
	if err := failpoint.Hit("jobs/written"); err != nil {
		return err
	}
	// A database that was restored knows nothing of a submission that came after its backup. A key may be for submissions
	// alone: then nobody can tell.
	told, err := provider.Poll(ctx, b.nonce, "")
	switch {
	case err != nil && !lasting(err):
		return err
	case err == nil && told.State != embed.JobUnknown:
		return j.running(ctx, b, told)
	}
	told, err = provider.Submit(ctx, b.nonce, texts.ids, texts.list)
	if err != nil {
		// Nobody knows whether there is a job, unless the provider has refused it.
		if class, _ := embed.Classify(err); lasting(err) || class == embed.Resource {
			if b.tries+1 < mostTries && class != embed.Data {
				return errors.Join(err, j.back(ctx, b))
			}
			return j.end(ctx, b, new(int64), shortened(err))
		}
		return err
	}
	if err := failpoint.Hit("jobs/submitted"); err != nil {
		return err
	}
	return j.running(ctx, b, told)
}

// running notes a job that the provider has.
func (j *Jobs) running(ctx context.Context, b *job, told embed.Job) error {
	if err := j.move(ctx, b, change{to: "running", pause: soon, provider: told.ID}); err != nil {
		return err
	}
	j.o.Log.InfoContext(ctx, "batch job submitted", "pipeline", j.o.Pipeline.Name, "job", told.ID, "texts", b.texts)
	return failpoint.Hit("jobs/noted")
}

// find looks for a job whose submission has no known end.
func (j *Jobs) find(ctx context.Context, b *job) error {
	provider, err := j.batcher(ctx, b)
	if provider == nil {
		return err
	}
	told, err := provider.Poll(ctx, b.nonce, "")
	switch {
	case err != nil:
		return err
	case told.State != embed.JobUnknown:
		return j.running(ctx, b, told)
	case b.tries < patience && failpoint.Hit("jobs/patience-is-over") == nil: // it may still be on its way
		return j.move(ctx, b, change{to: b.state, pause: idle, tries: b.tries + 1})
	}
	b.tries = 0
	return j.back(ctx, b)
}

// poll asks for a job, and fetches its results when it has ended.
func (j *Jobs) poll(ctx context.Context, b *job) error {
	provider, err := j.batcher(ctx, b)
	if provider == nil {
		return err
	}
	told, err := provider.Poll(ctx, b.nonce, b.provider)
	if err != nil {
		return err
	}
	switch told.State {
	case embed.JobRunning:
		pause := min(max(time.Duration(b.age/10*float64(time.Second)), soon), longest) //nolint:mnd // a tenth of its age
		return j.move(ctx, b, change{to: b.state, pause: pause})
	case embed.JobUnknown: // nobody knows what it has cost
		return j.end(ctx, b, nil, "the provider does not know the job any more")
	case embed.JobFailed:
		return j.end(ctx, b, new(int64), "the job has failed: "+told.Message)
	case embed.JobEnded:
	}
	got, err := j.fetch(ctx, provider, b)
	if lasting(err) && b.tries+1 >= mostTries {
		return j.end(ctx, b, nil, "its results cannot be fetched: "+shortened(err))
	}
	if err != nil {
		return err
	}
	if err := failpoint.Hit("jobs/fetched"); err != nil {
		return err
	}
	message := told.Message
	if missing := b.texts - got.texts; missing > 0 {
		message = fmt.Sprintf("%d of %d texts have no result: %s", missing, b.texts, cmp.Or(told.Message, "they are embedded as usual"))
	}
	tokens := got.tokens
	if tokens == 0 && b.texts > 0 { // it does not say
		tokens = b.tokens * int64(got.texts) / int64(b.texts)
	}
	j.worker.CountBatched(got.texts, int(tokens))
	return j.end(ctx, b, &tokens, message)
}

// fetched is what a job has given.
type fetched struct {
	texts  int
	tokens int64
}

// fetch stores the vectors of a job. Results that nobody asked for are left out, and of two for one text the first
// counts.
func (j *Jobs) fetch(ctx context.Context, provider embed.Batcher, b *job) (got fetched, err error) {
	asked, err := j.asked(ctx, b)
	if err != nil {
		return got, err
	}
	var some results
	err = provider.Fetch(ctx, b.provider, func(id string, r embed.Result) error {
		hash, ok := asked[id]
		if !ok || r.Vector == nil || r.Err != nil {
			return nil
		}
		delete(asked, id)
		got.texts, got.tokens = got.texts+1, got.tokens+int64(r.Tokens)
		some.add(hash, r.Vector)
		if len(some.hashes) < rows.PageRows {
			return nil
		}
		return j.store(ctx, b, &some)
	})
	if err == nil {
		err = j.store(ctx, b, &some)
	}
	return got, err
}

// end has the rows of a job become tasks. tokens are what it has taken; nil: nobody knows.
func (j *Jobs) end(ctx context.Context, b *job, tokens *int64, message string) error {
	if err := j.settle(ctx, b, change{to: "ended", message: message}, tokens); err != nil {
		return err
	}
	log := j.o.Log.InfoContext
	if message != "" {
		log = j.o.Log.WarnContext
	}
	log(ctx, "batch job ended", "pipeline", j.o.Pipeline.Name, "job", b.provider, "texts", b.texts, "message", message)
	return failpoint.Hit("jobs/ended")
}

// back has a job be submitted again: the provider has none.
func (j *Jobs) back(ctx context.Context, b *job) error {
	return j.settle(ctx, b, change{to: "closed", pause: min(time.Second<<min(b.tries, 10), longest), tries: b.tries + 1},
		new(int64))
}

// release makes tasks of rows of a job that has ended, some at a time, and lets it go when they are done.
func (j *Jobs) release(ctx context.Context, b *job) error {
	open, err := j.o.Backlog(ctx)
	if err != nil {
		return err
	}
	if open >= Released {
		return j.move(ctx, b, change{to: b.state, pause: soon})
	}
	n, err := j.releaseSome(ctx, b)
	if err != nil {
		return err
	}
	if n > 0 {
		j.o.Wake()
		return failpoint.Hit("jobs/released")
	}
	gone, err := j.drop(ctx, b)
	if err != nil || gone {
		return err
	}
	return j.move(ctx, b, change{to: b.state, pause: soon})
}

// texts are those of a job.
type texts struct {
	ids, list []string
	hashes    [][]byte
	bytes     int
	tokens    int64
	most      int64 // tokens
}

// nameOf is what the provider is told of a text, to tell results by: enough of its hash.
func nameOf(hash []byte) string { return hex.EncodeToString(hash[:16]) }

// add reports whether the texts of a row have room.
func (t *texts) add(list []string, seen map[[sha256.Size]byte]bool, left int64) bool {
	const around = 256 // as many tokens as a model may put around a text
	var (
		hashes [][sha256.Size]byte
		fresh  []string
		size   int
		tokens int64
	)
	for _, text := range list {
		hash := pipeline.TextHash(text)
		if seen[hash] {
			continue
		}
		hashes, fresh = append(hashes, hash), append(fresh, text)
		size, tokens = size+len(text), tokens+int64(embed.Result{}.TokensOf(text))
	}
	if len(t.list)+len(fresh) > embed.MaxJobTexts || t.bytes+size > embed.MaxJobBytes || t.tokens+tokens > left {
		return false
	}
	for i, text := range fresh {
		seen[hashes[i]] = true
		t.hashes, t.list = append(t.hashes, hashes[i][:]), append(t.list, text)
		t.ids = append(t.ids, nameOf(hashes[i][:]))
		t.most += int64(len(text)) + around
	}
	t.bytes, t.tokens = t.bytes+size, t.tokens+tokens
	return true
}

// gatherTexts reads the texts of a job and writes down their hashes: it is submitting then. Rows that need no embedder
// become tasks, and those for which there is no room another job. nil: nothing is to be submitted now.
func (j *Jobs) gatherTexts(ctx context.Context, b *job) (*texts, error) {
	left, err := j.budgetLeft(ctx)
	if err != nil {
		return nil, err
	}
	t, seen := &texts{}, map[[sha256.Size]byte]bool{}
	var (
		after  *string
		last   *string // the last row that has room
		plain  []string
		filled bool
	)
	for !filled {
		keys, busy, end, err := j.keys(ctx, b, after)
		if err != nil {
			return nil, err
		}
		if after = end; end == nil {
			break
		}
		plain = append(plain, busy...)
		for len(keys) > 0 && !filled {
			wants, err := j.worker.Wants(ctx, keys)
			if err != nil {
				return nil, err
			}
			keys = keys[len(wants):]
			// Rows come back as they were asked for.
			for i := range wants {
				if len(wants[i].Texts) > 0 && !t.add(wants[i].Texts, seen, left) {
					if len(t.list) > 0 {
						filled = true
						break
					}
					if left < mostLeft { // it is not the row that is too large
						return nil, j.setAside(ctx, b, wants[i].Key)
					}
					wants[i].Texts = nil
				}
				if len(wants[i].Texts) == 0 {
					plain = append(plain, wants[i].Key)
				}
				last = &wants[i].Key
			}
		}
	}
	if len(t.list) == 0 {
		return nil, j.end(ctx, b, nil, "")
	}
	if !filled {
		last = nil
	}
	b.texts, b.tokens = len(t.list), t.tokens
	return j.write(ctx, b, t, plain, last)
}

// shortened is what is kept of an error. Of a provider's it is the kind alone: its own words, which may repeat texts of
// rows, are for the log.
func shortened(err error) string {
	if whole, is := errors.AsType[*embed.Error](err); is {
		return string(whole.Class) + " error " + whole.Code + ": the sidecar's log says more"
	}
	message := []rune(err.Error())
	const most = 300
	return string(message[:min(len(message), most)])
}

func nonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
