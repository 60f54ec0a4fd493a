package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/queue"
)

// pass lets a time pass on the test's own clock, and whatever that sets off.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// keepalive is the server's sign of life, which may ask for one of ours.
func keepalive(end pglogrepl.LSN, ask bool) *pgproto3.CopyData {
	data := binary.BigEndian.AppendUint64([]byte{pglogrepl.PrimaryKeepaliveMessageByteID}, uint64(end))
	data = binary.BigEndian.AppendUint64(data, 0)
	return &pgproto3.CopyData{Data: append(data, map[bool]byte{true: 1}[ask])}
}

// walData is the frame around a message.
func walData(start, end pglogrepl.LSN, message []byte) *pgproto3.CopyData {
	data := binary.BigEndian.AppendUint64([]byte{pglogrepl.XLogDataByteID}, uint64(start))
	data = binary.BigEndian.AppendUint64(data, uint64(end))
	data = binary.BigEndian.AppendUint64(data, 0)
	return &pgproto3.CopyData{Data: append(data, message...)}
}

// memory is a wire to nobody: what it receives is put into in, and what is sent is kept.
type memory struct {
	in    chan pgproto3.BackendMessage
	moved chan struct{} // the deadline was
	came  atomic.Int64  // bytes

	mu       sync.Mutex
	deadline time.Time
	sent     []pglogrepl.StandbyStatusUpdate
	broken   error
}

func newMemory() *memory {
	return &memory{in: make(chan pgproto3.BackendMessage, 10), moved: make(chan struct{}, 1)}
}

func (m *memory) receive() (pgproto3.BackendMessage, error) {
	for {
		m.mu.Lock()
		left := time.Until(m.deadline)
		m.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case message, open := <-m.in:
			timer.Stop()
			if !open {
				return nil, errors.New("closed")
			}
			return message, nil
		case <-timer.C:
			return nil, nil //nolint:nilnil // the deadline is no error
		case <-m.moved:
			timer.Stop()
		}
	}
}

func (m *memory) until(deadline time.Time) {
	m.mu.Lock()
	m.deadline = deadline
	m.mu.Unlock()
	sleep.Wake(m.moved)
}

func (m *memory) heard() int64 { return m.came.Load() }

func (m *memory) status(_ context.Context, update pglogrepl.StandbyStatusUpdate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, update)
	return m.broken
}

// told returns what was sent since it was asked last.
func (m *memory) told() []pglogrepl.StandbyStatusUpdate {
	m.mu.Lock()
	defer m.mu.Unlock()
	sent := m.sent
	m.sent = nil
	return sent
}

// reading runs the reader of a session. stop ends it as a request to stop does, and returns what it returned.
func reading(t *testing.T) (ses *session, m *memory, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m = newMemory()
	ses = &session{
		s: New(Options{Log: slog.New(slog.DiscardHandler)}), wire: m, buffer: newBuffer(),
		durable: make(chan pglogrepl.LSN, 1), relations: map[uint32]*relation{}, feedback: 10 * time.Second,
		pos: position{received: 100, durable: 100},
	}
	ended := make(chan error, 1)
	go func() { ended <- ses.read(ctx) }()
	synctest.Wait()
	return ses, m, func() error {
		synctest.Wait()
		cancel()
		return <-ended
	}
}

// While the enqueuer rests the reader lets messages gather, but not for long.
func TestRead_NapsWhileNobodyTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, m, stop := reading(t)
		ses.restsUntil.Store(time.Now().Add(time.Second).UnixNano())
		read := func(lsn pglogrepl.LSN) bool {
			m.in <- keepalive(lsn, false)
			synctest.Wait()
			return ses.s.stats.ServerLSN.Load() == uint64(lsn)
		}
		pass(time.Millisecond)
		if !read(900) {
			t.Error("who waited for a message already does not get it")
		}
		if read(901) || read(902) {
			t.Error("each message is waited for by itself")
		}
		if pass(10 * time.Millisecond); ses.s.stats.ServerLSN.Load() != 902 {
			t.Error("it sleeps for too long")
		}
		pass(time.Second)
		if !read(903) || !read(904) {
			t.Error("it sleeps though nobody rests")
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// P2: the server is told what is durable, and never what was only received.
func TestP2_FeedbackConfirmsWhatIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, m, stop := reading(t)
		if first := m.told(); len(first) != 1 || first[0].WALFlushPosition != 100 {
			t.Fatalf("at the start the server is told %+v", first)
		}
		m.in <- keepalive(900, false)
		synctest.Wait()
		if len(m.told()) != 0 || ses.s.stats.ServerLSN.Load() != 900 {
			t.Error("an answer that nobody asked for")
		}
		m.in <- keepalive(950, true)
		synctest.Wait()
		got := m.told()
		if len(got) != 1 || got[0].WALWritePosition != 950 || got[0].WALFlushPosition != 100 ||
			got[0].WALApplyPosition != 100 {
			t.Fatalf("told %+v, want what was received, and that nothing more is durable", got)
		}
		if taken := ses.buffer.take(); taken.upTo != 950 || !taken.hurry {
			t.Errorf("took %+v: a server that asks wants it saved", taken)
		}
		ses.durable <- 950
		pass(11 * time.Second)
		if got = m.told(); len(got) == 0 || got[len(got)-1].WALFlushPosition != 950 {
			t.Errorf("told %+v, want what is durable now", got)
		}
		ses.durable <- 990
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got = m.told(); len(got) != 1 || got[0].WALFlushPosition != 990 || got[0].WALWritePosition != 990 {
			t.Errorf("its last words are %+v, want what is durable", got)
		}
	})
}

// Feedback goes on while the queue is blocked; what is read does not.
func TestP9_AFullBufferStopsReadingAndNotTheFeedback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, m, stop := reading(t)
		for range maxBatch {
			ses.buffer.add(queue.Change{RowKey: "1"})
		}
		ses.buffer.commit(0, false)
		m.in <- keepalive(900, false)
		synctest.Wait()
		m.in <- keepalive(1000, false)
		ses.durable <- 300
		pass(time.Minute)
		if got := m.told(); len(got) < 6 || got[len(got)-1].WALFlushPosition != 300 {
			t.Errorf("in a minute the server heard %d times of us", len(got))
		}
		if len(m.in) != 1 {
			t.Error("more is read while the buffer is full")
		}
		ses.buffer.take()
		synctest.Wait()
		if len(m.in) != 0 {
			t.Error("there is room, and nothing is read")
		}
		for range maxBatch {
			ses.buffer.add(queue.Change{RowKey: "1"})
		}
		ses.buffer.commit(0, false)
		m.in <- keepalive(1100, false)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("while it holds: %v", err)
		}
	})
}

// A half-open connection never says that it is dead: it is asked, and then given up.
func TestRead_GivesUpAServerThatIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, m, stop := reading(t)
		pass(61 * time.Second)
		asked := slices.ContainsFunc(m.told(), func(u pglogrepl.StandbyStatusUpdate) bool { return u.ReplyRequested })
		pass(20 * time.Second)
		if err := stop(); err == nil || errors.Is(err, context.Canceled) || !asked {
			t.Errorf("after %s: %v, and it was asked: %t", time.Since(began), err, asked)
		}
	})
}

// A transaction of which nothing is sent may take the server long to decode. It answers all the same, but only after
// half of its own timeout: who gave it up before would have it begin again, and again.
func TestP1_AServerThatDecodesForLongIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := newMemory()
		ses := &session{
			s: New(Options{Log: slog.New(slog.DiscardHandler)}), wire: m, buffer: newBuffer(),
			durable: make(chan pglogrepl.LSN, 1), relations: map[uint32]*relation{}, feedback: 10 * time.Second,
			patience: answersWithin(10 * time.Minute),
		}
		ended := make(chan error, 1)
		go func() { ended <- ses.read(ctx) }()
		for range 3 {
			pass(5*time.Minute + time.Second)
			m.in <- keepalive(900, false)
			synctest.Wait()
		}
		select {
		case err := <-ended:
			t.Fatal("it was given up:", err)
		default:
		}
		pass(6 * time.Minute)
		select {
		case err := <-ended:
			if err == nil {
				t.Error("it ended without an error")
			}
		default:
			t.Error("it is waited for for ever")
		}
	})
}

// While the buffer is full nobody listens, which is not held against a server that has nothing more to say then.
func TestP1_WhoDoesNotListenBlamesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, m, stop := reading(t)
		for range maxBatch {
			ses.buffer.add(queue.Change{RowKey: "1"})
		}
		ses.buffer.commit(0, false)
		m.in <- keepalive(900, false)
		pass(5 * time.Minute)
		ses.buffer.take()
		pass(25 * time.Second)
		m.in <- keepalive(901, false)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A message that is large for its network comes for longer than a silent server is waited for.
func TestP1_AMessageThatComesSlowlyIsNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, m, stop := reading(t)
		for range 30 {
			pass(7 * time.Second)
			m.came.Add(1000)
		}
		if got := ses.s.stats.Trouble.Load(); got != nil {
			t.Error("while it comes:", got.Err)
		}
		m.in <- keepalive(900, false)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A server that was asked and says nothing may have changes: until it says something, nobody is told that all is well.
func TestP10_AServerThatIsSilentIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ses, m, stop := reading(t)
		trouble := &ses.s.stats.Trouble
		began := time.Now()
		pass(19 * time.Second)
		if got := trouble.Load(); got != nil {
			t.Errorf("after 19 s: %+v", got)
		}
		pass(22 * time.Second)
		if got := trouble.Load(); got == nil || got.Err == nil || got.Since.Sub(began) > time.Second {
			t.Errorf("after 41 s: %+v", got)
		}
		m.in <- keepalive(900, false)
		pass(time.Second)
		if got := trouble.Load(); got != nil {
			t.Errorf("after a word: %+v", got)
		}
		_ = stop()
	})
}

func TestRead_EndsWithWhatTheServerSays(t *testing.T) {
	t.Parallel()
	whatever := func(err error) bool { return err != nil }
	malformed := func(err error) bool { return errors.Is(err, ErrMalformed) }
	for name, c := range map[string]struct {
		do   func(m *memory)
		want func(err error) bool
	}{
		"an error": {
			func(m *memory) { m.in <- &pgproto3.ErrorResponse{Code: "22P05"} },
			func(err error) bool { _, ok := errors.AsType[*undecodedError](err); return ok },
		},
		"the end":            {func(m *memory) { m.in <- &pgproto3.CopyDone{} }, whatever},
		"a broken frame":     {func(m *memory) { m.in <- &pgproto3.CopyData{Data: []byte("w")} }, malformed},
		"a broken keepalive": {func(m *memory) { m.in <- &pgproto3.CopyData{Data: []byte("k")} }, malformed},
		"a closed wire":      {func(m *memory) { close(m.in) }, whatever},
		"a wire that takes nothing": {func(m *memory) {
			m.mu.Lock()
			m.broken = errors.New("broken pipe")
			m.mu.Unlock()
			m.in <- keepalive(900, true)
		}, whatever},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, m, stop := reading(t)
			c.do(m)
			if err := stop(); errors.Is(err, context.Canceled) || !c.want(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestHeardEvery_IsWithinTheServersTimeout(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, time.Minute: 10 * time.Second, 3 * time.Second: time.Second, time.Hour: 10 * time.Second,
		30 * time.Millisecond: 50 * time.Millisecond,
	} {
		if got := heardEvery(timeout); got != want {
			t.Errorf("with wal_sender_timeout %s: every %s, want %s", timeout, got, want)
		}
		if got := answersWithin(timeout); got < 6*want || got <= timeout/2 {
			t.Errorf("with wal_sender_timeout %s: it is given up after %s", timeout, got)
		}
	}
}
