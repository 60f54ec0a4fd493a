// Package jobs embeds backfills with a provider's batch jobs, which take hours and cost less. A scan collects rows
// instead of creating tasks (worker.Jobs). A job's texts are read and their hashes stored before it is submitted. When
// the job has ended, its vectors are stored by text hash and its rows become tasks. These are processed like any task
// and find their vectors here. A row that changed meanwhile, or whose text has no result, is embedded as usual. Nothing
// of a job is written without the ledger.
//
// Every step starts from what the previous one committed. Before a job is submitted, the provider is asked for its
// nonce: a crash or a restore may have lost the record of a submission.
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

// Options configure the jobs of a pipeline.
type Options struct {
	Pipeline *pipeline.Pipeline
	DB       database.DB
	Service  *embed.Service
	ID       int64 // worker_id of this sidecar
	Price    pipeline.Price
	Backlog  func(ctx context.Context) (open int, err error) // of the pipeline's low tasks
	Wake     func()                                          // called when tasks were created
	Log      *slog.Logger
	// Storable makes a provider's message fit the database's encoding; nil: it fits.
	Storable func(message string) string
}

// Jobs are the batch jobs of a pipeline. They implement worker.Jobs.
type Jobs struct {
	o      Options
	worker *worker.Worker
	passed map[int64]string // by job: releasePaid has passed its rows up to this key
}

var _ worker.Jobs = (*Jobs)(nil)

// New returns the jobs of a pipeline.
func New(o Options) *Jobs { return &Jobs{o: o, passed: map[int64]string{}} }

// Delays and limits.
const (
	idle      = 5 * time.Second
	soon      = time.Second
	longest   = time.Minute // between two polls of a job
	patience  = 12          // answers that a job is unknown, idle apart, before it is submitted again
	mostTries = 10
	// While a job is submitting, its tries are the earlier submissions times this, and the answers to the last one.
	round = patience + 1
)

// Released is the number of open tasks of a pipeline above which no more job rows become tasks.
const Released = 4 * rows.PageRows

// Run processes jobs until ctx ends. It leaves them to another sidecar: this one may live on without the pipeline.
func (j *Jobs) Run(ctx context.Context, w *worker.Worker) error {
	j.worker = w
	defer j.leave(ctx)
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

// job is a batch job taken by this process.
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

// step does the next step of a job.
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

// storable makes a message fit the database's encoding.
func (j *Jobs) storable(message string) string {
	if j.o.Storable == nil {
		return message
	}
	return j.o.Storable(message)
}

// later postpones a job with a growing delay and keeps the error message.
func (j *Jobs) later(ctx context.Context, b *job, message string) error {
	pause := min(time.Second<<min(b.tries, 10), longest)
	tries := b.tries + 1
	if b.state == "submitting" {
		tries = b.tries
	}
	return j.move(ctx, b, change{to: b.state, pause: pause, tries: tries, message: message})
}

// lasting reports whether a step keeps failing until a user changes something.
func lasting(err error) bool {
	whole, is := errors.AsType[*embed.Error](err)
	return is && (whole.Class == embed.Configuration || whole.Class == embed.Data)
}

// batcher returns the provider of batch jobs. If the model has none, it ends the job and returns nil.
func (j *Jobs) batcher(ctx context.Context, b *job) (embed.Batcher, error) {
	provider, err := j.o.Service.Batcher(ctx)
	if errors.Is(err, embed.ErrNoBatches) {
		return nil, j.end(ctx, b, nil, err.Error())
	}
	return provider, err
}

// submit reads the texts of a job, stores their hashes and submits them.
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
	// A restored database does not know submissions made after its backup. If the key permits submissions only, Poll
	// cannot tell.
	told, err := provider.Poll(ctx, b.nonce, "")
	switch {
	case err != nil && !lasting(err):
		return err
	case err == nil && told.State != embed.JobUnknown:
		return j.running(ctx, b, told)
	}
	told, err = provider.Submit(ctx, b.nonce, texts.ids, texts.list)
	if err != nil {
		// Unless the provider refused it, a job may exist.
		if class, _ := embed.Classify(err); lasting(err) || class == embed.Resource {
			if b.tries/round+1 < mostTries && class != embed.Data {
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

// running records that the provider has the job.
func (j *Jobs) running(ctx context.Context, b *job, told embed.Job) error {
	if err := j.move(ctx, b, change{to: "running", pause: soon, provider: told.ID}); err != nil {
		return err
	}
	j.o.Log.InfoContext(ctx, "batch job submitted", "pipeline", j.o.Pipeline.Name, "job", told.ID, "texts", b.texts)
	return failpoint.Hit("jobs/noted")
}

// find looks for a job whose submission has an unknown result.
func (j *Jobs) find(ctx context.Context, b *job) error {
	provider, err := j.batcher(ctx, b)
	if provider == nil {
		return err
	}
	told, err := provider.Poll(ctx, b.nonce, "")
	switch {
	case lasting(err) && b.tries%round == patience: // the key may permit submissions only
		return j.end(ctx, b, nil, "it is unknown whether the provider has the job: "+shortened(err))
	case lasting(err):
		b.tries++
		return err
	case err != nil:
		return err
	case told.State != embed.JobUnknown:
		return j.running(ctx, b, told)
	case b.tries%round < patience && failpoint.Hit("jobs/patience-is-over") == nil: // it may not be visible yet
		return j.move(ctx, b, change{to: b.state, pause: idle, tries: b.tries + 1})
	case b.tries/round+1 >= mostTries:
		return j.end(ctx, b, nil, "the provider does not confirm a submission")
	}
	return j.back(ctx, b)
}

// poll asks for the state of a job and fetches its results when it has ended.
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
	case embed.JobUnknown: // its cost is unknown
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
	if tokens == 0 && b.texts > 0 { // the provider does not report them
		tokens = b.tokens * int64(got.texts) / int64(b.texts)
	}
	j.worker.CountBatched(got.texts, int(tokens))
	return j.end(ctx, b, &tokens, message)
}

// fetched counts what a job returned.
type fetched struct {
	texts  int
	tokens int64
}

// fetch stores the vectors of a job. It ignores results for unknown texts, and all but the first for one text.
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

// end releases the rows of a job as tasks. tokens is what it used; nil: unknown.
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

// back returns a job to be submitted again: the provider does not have it.
func (j *Jobs) back(ctx context.Context, b *job) error {
	b.tries /= round
	return j.settle(ctx, b, change{to: "closed", pause: min(time.Second<<min(b.tries, 10), longest), tries: b.tries + 1},
		new(int64))
}

// release turns some rows of an ended job into tasks, and drops the job once they are done.
func (j *Jobs) release(ctx context.Context, b *job) error {
	if j.o.Pipeline.Paid {
		return j.releasePaid(ctx, b)
	}
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

// releasePaid is release while the budget is spent: it writes the vectors that a job has returned, a page of rows at a
// time. It passes each row once; rows that need the embedder wait for the budget.
func (j *Jobs) releasePaid(ctx context.Context, b *job) error {
	if _, err := j.releaseSome(ctx, b); err != nil {
		return err
	}
	keys, busy, last, err := j.keys(ctx, b, database.Given(j.passed[b.id]))
	if err != nil {
		return err
	}
	if last == nil {
		gone, err := j.drop(ctx, b)
		if err != nil || gone {
			return err
		}
		return j.move(ctx, b, change{to: b.state, pause: longest})
	}
	if err := j.worker.Paid(ctx, append(keys, busy...)); err != nil {
		return err
	}
	j.passed[b.id] = *last
	return nil
}

// texts are the texts of a job.
type texts struct {
	ids, list []string
	hashes    [][]byte
	bytes     int
	tokens    int64
	most      int64 // tokens
}

// nameOf returns the provider's ID of a text: half of its hash.
func nameOf(hash []byte) string { return hex.EncodeToString(hash[:16]) }

// add adds the texts of a row and reports whether they fit.
func (t *texts) add(list []string, seen map[[sha256.Size]byte]bool, left int64) bool {
	const around = 256 // maximum number of tokens that a model adds to a text
	var (
		hashes [][sha256.Size]byte
		fresh  []string
		size   int
		tokens int64
		once   = map[[sha256.Size]byte]bool{} // chunks of one row may be equal
	)
	for _, text := range list {
		hash := pipeline.TextHash(text)
		if seen[hash] || once[hash] {
			continue
		}
		once[hash] = true
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

// gatherTexts reads the texts of a job and stores their hashes, which makes it submitting. Rows that need no embedder
// become tasks; rows that do not fit become another job. It returns nil if nothing is to be submitted now.
func (j *Jobs) gatherTexts(ctx context.Context, b *job) (*texts, error) {
	left, held, err := j.budgetLeft(ctx)
	if err != nil {
		return nil, err
	}
	t, seen := &texts{}, map[[sha256.Size]byte]bool{}
	var (
		after  *string
		last   *string // last row that fits
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
			// Rows are returned in the requested order.
			for i := range wants {
				if len(wants[i].Texts) > 0 && !t.add(wants[i].Texts, seen, left) {
					if len(t.list) > 0 {
						filled = true
						break
					}
					if left < mostLeft { // the budget is the reason, not the row's size
						return nil, j.exceeds(ctx, b, wants[i].Key, held || left == 0)
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

// shortened returns the part of an error that is stored. Of a provider's error it is the class and code: the message
// may contain row texts and is only logged.
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
