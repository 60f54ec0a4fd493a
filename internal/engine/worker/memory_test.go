package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// memory is what a worker asks of a database, for tests of what it decides. It knows neither SQL nor snapshots: what
// these do is tried on a real server. A test may have it refuse what servers refuse.
type memory struct {
	*rows.Table // answers what needs no server
	p           *pipeline.Pipeline

	mu     sync.Mutex
	source map[string]string
	stored map[string]kept
	ledger map[string]rows.Row // of which only the entry counts
	writes int

	refuseLease func()
	refuseRead  func(keys []string) error
	refuseWrite func(c *rows.Change) error
	beforeBegin func() // somebody is faster
	overdue     bool
	overtaken   bool // the pipeline changes behind the fence
	locked      map[string]bool
	out         map[string]bool // rows that the filter leaves out
	moved       bool            // a trigger changes texts

	todo      []queue.Task
	outcomes  []queue.Outcome
	givenBack int
	again     []string
	wherever  []knownVector
	others    map[int32]map[string][]float32
	scan      *scanState
	unsaved   int // steps of the scan that another sidecar saves first
	backlog   int
	finished  chan struct{}
}

// kept is what the destination holds of a row.
type kept struct {
	vector     []float32
	hash       []byte // of the text, or of all chunks' texts
	generation int32
	chunks     []rows.DeepChunk
}

func (m *memory) Read(_ context.Context, keys []string, texts int) ([]rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuseRead != nil {
		if err := m.refuseRead(keys); err != nil {
			return nil, err
		}
	}
	found, sent := make([]rows.Row, len(keys)), 0
	for i, key := range keys {
		r := m.ledger[key]
		r.Key = key
		if text, ok := m.source[key]; ok {
			sum := sha256.Sum256([]byte(text))
			r.Found, r.Actual, r.Keep, r.Hashed = true, key, !m.out[key], true
			r.Source = append(pipeline.SourceHash{}, sum[:16]...)
			if r.TextHash = pipeline.TextHash(text); m.p.Chunked {
				r.TextHash = m.p.Chunking.ChunkedHash(text, "")
			}
			if len(bytes.TrimSpace([]byte(text))) > 0 {
				r.Bytes = len(text)
			}
			if sent += len(text); sent <= texts || m.p.Chunked && len(text) <= texts {
				r.Text = text
			}
		}
		if k, ok := m.stored[key]; ok {
			r.Stored, r.StoredHash, r.StoredGeneration = true, k.hash, k.generation
			if m.p.InSource() {
				hash := pipeline.VectorHash(k.vector)
				r.StoredHash, r.StoredGeneration = hash[:], 0
			}
		}
		found[i] = r
	}
	return found, nil
}

func (*memory) IsKey(_ context.Context, key string) bool { return key != "none" }

func (m *memory) OfSomeRow(_ context.Context, err error) bool {
	return rows.Fault(err) == database.Data
}

func (m *memory) Vectors(_ context.Context, keys []string) (map[int][]float32, error) {
	found := map[int][]float32{}
	for i, key := range keys {
		if k, ok := m.stored[key]; ok {
			found[i] = k.vector
		}
	}
	return found, nil
}

func (m *memory) TryWrite(context.Context) error {
	if m.refuseWrite != nil {
		return m.refuseWrite(&rows.Change{})
	}
	return nil
}

func (*memory) Free(context.Context, []string) (*rows.Locks, error) { return nil, nil }

// Screen takes all changes for visible, and their rows for free.
func (*memory) Screen(ctx context.Context, changes []queue.Change, ask queue.Ask) (s queue.Screened, err error) {
	verdicts, _, err := ask(ctx, changes)
	for i, v := range verdicts {
		if v == queue.ScreenNow {
			s.Now = append(s.Now, changes[i])
		} else {
			s.Later = append(s.Later, changes[i])
		}
	}
	return s, err
}

func (m *memory) screen(ctx context.Context, _ *queue.Direct, changes []queue.Change, texts int) (s rows.Screened,
	err error,
) {
	keys := make([]string, len(changes))
	for i := range changes {
		keys[i] = changes[i].RowKey
		s.Verdicts = append(s.Verdicts, queue.ScreenNow)
	}
	s.Rows, err = m.Read(ctx, keys, texts)
	return s, err
}

func (m *memory) writeAtOnce(ctx context.Context, d *queue.Direct, writes []rows.Write, entries []rows.Entry) (bool,
	map[string]bool, error,
) {
	b, err := m.begin(ctx, queue.Lease{Direct: d}, len(entries), nil, func(*rows.Locks) []rows.Entry { return entries })
	if err != nil || !b.held {
		return b.held, nil, err
	}
	c := &rows.Change{}
	for i := range writes {
		if b.passed[writes[i].Key] {
			c.Write = append(c.Write, writes[i])
		}
	}
	if err := b.write(ctx, c); err != nil {
		return true, nil, err
	}
	_, err = b.commit(ctx, nil)
	return true, b.passed, err
}

// change is a write-back in memory.
type change struct {
	m       *memory
	lease   queue.Lease
	entries []rows.Entry
	c       *rows.Change
}

func (m *memory) begin(_ context.Context, l queue.Lease, _ int, touched []string,
	fence func(locked *rows.Locks) []rows.Entry,
) (openWriteBack, error) {
	if m.beforeBegin != nil {
		m.beforeBegin()
	}
	b := openWriteBack{held: !m.overdue, passed: map[string]bool{}}
	if m.p.InSource() {
		b.locked = &rows.Locks{Sources: map[string]pipeline.SourceHash{}}
		for _, key := range touched {
			if !m.locked[key] {
				sum := sha256.Sum256([]byte(m.source[key]))
				b.locked.Sources[key] = append(pipeline.SourceHash{}, sum[:16]...)
			}
		}
	}
	t := &change{m: m, lease: l}
	for _, e := range fence(b.locked) {
		now, known := m.ledger[e.Key]
		if known == (e.Version != nil) && (!known || now.LedgerVersion == *e.Version) {
			b.passed[e.Key] = true
			t.entries = append(t.entries, e)
		}
	}
	b.transaction = t
	return b, nil
}

func (t *change) write(_ context.Context, c *rows.Change) error {
	if t.m.refuseWrite != nil {
		if err := t.m.refuseWrite(c); err != nil {
			return err
		}
	}
	for i := range c.Write {
		if t.m.moved {
			if err := c.Moved(i); err != nil {
				return err
			}
		}
	}
	t.c = c
	return nil
}

func (t *change) commit(_ context.Context, outcomes []queue.Outcome) (queue.Finished, error) {
	m := t.m
	for _, e := range t.entries {
		m.writes++
		if e.Gone {
			delete(m.ledger, e.Key)
			continue
		}
		m.ledger[e.Key] = rows.Row{
			Ledger: true, LedgerVersion: strconv.Itoa(m.writes), LedgerSource: e.Source, LedgerText: e.Text,
			LedgerNorm: e.Norm, LedgerVector: e.Vector, LedgerGeneration: m.p.Generation,
		}
	}
	for i := range t.c.Write {
		w := &t.c.Write[i]
		k := kept{vector: m.p.Stored.Canonical(w.Vector), hash: w.TextHash, generation: m.p.Generation}
		if m.p.Chunked {
			k.hash = nil
			h := sha256.New()
			for no := range w.Chunks {
				p := &w.Chunks[no]
				_, _ = h.Write(p.Hash[:])
				vector := p.Vector
				if p.Stays {
					vector = m.stored[w.Key].chunks[no].Vector
				}
				k.chunks = append(k.chunks, rows.DeepChunk{Chunk: p.Chunk, Hash: p.Hash[:], Vector: vector})
			}
			k.hash = h.Sum(nil)
		}
		m.stored[w.Key] = k
	}
	for _, key := range slices.Concat(t.c.Empty, t.c.Remove) {
		delete(m.stored, key)
	}
	for _, key := range t.c.Adopt {
		k := m.stored[key]
		k.generation = m.p.Generation
		m.stored[key] = k
	}
	if m.overtaken {
		return queue.Finished{}, nil
	}
	m.outcomes = append(m.outcomes, outcomes...)
	if d := t.lease.Direct; d != nil {
		return d.End(outcomes), nil
	}
	return finishedAs(outcomes), nil
}

func (*change) end(context.Context) {}

func (m *memory) Finish(_ context.Context, _ int64, l queue.Lease, _ int32, outcomes []queue.Outcome) (queue.Finished,
	error,
) {
	if m.overdue {
		return queue.Finished{}, nil
	}
	m.outcomes = append(m.outcomes, outcomes...)
	if l.Direct != nil {
		return l.Direct.End(outcomes), nil
	}
	return finishedAs(outcomes), nil
}

// finishedAs is what becomes of tasks to which nothing happens meanwhile.
func finishedAs(outcomes []queue.Outcome) (f queue.Finished) {
	for i := range outcomes {
		switch outcomes[i].Action {
		case queue.Done:
			f.Done++
		case queue.Again:
			f.Reopened++
		case queue.Later:
			f.Retrying++
		case queue.Fail:
			f.Failed++
		}
	}
	return f
}

func (m *memory) addTasks(_ context.Context, keys []string) error {
	m.again = append(m.again, keys...)
	return nil
}

func (m *memory) known(_ context.Context, hashes [][]byte) ([]knownVector, error) {
	var found []knownVector
	for key, r := range m.ledger {
		for _, hash := range hashes {
			if bytes.Equal(r.LedgerText, hash) {
				found = append(found, knownVector{Key: key, TextHash: hash, VectorHash: r.LedgerVector})
			}
		}
	}
	return found, nil
}

func (m *memory) elsewhere(_ context.Context, _ []int32, _ [][]byte) ([]knownVector, error) {
	return m.wherever, nil
}

func (m *memory) vectorsOf(_ context.Context, p *pipeline.Pipeline, keys []string) (map[int][]float32, error) {
	found := map[int][]float32{}
	for i, key := range keys {
		found[i] = m.others[p.ID][key]
	}
	return found, nil
}

// Stored, Known, FetchMoved and Deep are of a table of chunks.

func (m *memory) Stored(_ context.Context, keys []string) ([][]rows.StoredChunk, error) {
	found := make([][]rows.StoredChunk, len(keys))
	for i, key := range keys {
		for no, c := range m.stored[key].chunks {
			found[i] = append(found[i], rows.StoredChunk{
				No: no, Start: c.Start, End: c.End, Generation: m.p.Generation, Hash: [sha256.Size]byte(c.Hash), HasText: true,
			})
		}
	}
	return found, nil
}

func (m *memory) Known(_ context.Context, hashes [][]byte, f func(i int, vector []float32)) error {
	for _, k := range m.stored {
		for _, c := range k.chunks {
			for i := range hashes {
				if bytes.Equal(hashes[i], c.Hash) {
					f(i, c.Vector)
				}
			}
		}
	}
	return nil
}

func (m *memory) FetchMoved(_ context.Context, keys []string, moved []*rows.Chunk) error {
	for i, p := range moved {
		p.Vector = m.stored[keys[i]].chunks[p.From.No].Vector
	}
	return nil
}

func (m *memory) Deep(_ context.Context, key string) ([]rows.DeepChunk, error) {
	return m.stored[key].chunks, nil
}

// What a queue does.

func (m *memory) Lease(_ context.Context, claim queue.Claim) ([]queue.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuseLease != nil {
		m.refuseLease()
	}
	var leased, left []queue.Task
	for _, task := range m.todo {
		if len(leased) == claim.Max || claim.Who == queue.Express && task.Lane == pipeline.Low {
			left = append(left, task)
		} else {
			leased = append(leased, task)
		}
	}
	m.todo = left
	return leased, nil
}

func (*memory) Extend(context.Context, queue.Lease, time.Duration) error { return nil }
func (m *memory) GiveBackLease(context.Context, queue.Lease) error       { m.givenBack++; return nil }
func (*memory) Note(int32, []queue.Outcome, queue.Finished)              {}
func (*memory) WakeNext(int32)                                           {}
func (*memory) Wake(...int32)                                            {}
func (*memory) MostUrgent(int32, queue.Who) pipeline.Lane                { return -1 }
func (m *memory) Backlog(context.Context, int32, int) (int, error)       { return m.backlog, nil }

func (m *memory) Wait(ctx context.Context, _ int32, _ queue.Who) bool {
	if m.finished != nil {
		m.finished <- struct{}{}
	}
	<-ctx.Done()
	return false
}

// What a scan does.
