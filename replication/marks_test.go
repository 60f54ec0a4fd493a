package replication

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

func TestStub(t *testing.T) {
	s := New(Options{Log: slog.New(slog.DiscardHandler)})
	ses := &session{s: s, buffer: newBuffer(), tx: &transaction{}}
	if err := ses.decode(t.Context(), []byte{database.Stub, 'M', 0, 0, 1, 2}); err != nil ||
		len(ses.buffer.take().scans) > 0 || s.stats.Strange.Load() != 258 {
		t.Errorf("messages: %v, %d are counted; want that nothing changes", err, s.stats.Strange.Load())
	}
	var gap *gapError
	if err := ses.decode(t.Context(), []byte{database.Stub, 'R', 0, 0, 0, 1}); !errors.As(err, &gap) {
		t.Errorf("another: %v, want a gap", err)
	}
	for _, data := range [][]byte{{database.Stub}, {database.Stub, 'U', 0, 0}} {
		if err := ses.decode(t.Context(), data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", data, err)
		}
	}
}

func TestBuffer_HurriesWhenAPositionThatIsWantedIsReached(t *testing.T) {
	b := newBuffer()
	b.commit(100, false)
	b.want(90)
	if got := b.take(); !got.hurry {
		t.Error("a position that is decoded: no hurry")
	}
	b.want(200)
	for range 2 * mostWanted { // what nobody will reach does not push out what will be
		b.want(1 << 60)
	}
	for lsn := pglogrepl.LSN(1 << 50); lsn < 1<<50+2*mostWanted; lsn++ {
		b.want(lsn)
	}
	b.commit(199, false)
	if got := b.take(); got.hurry {
		t.Error("before it is reached: hurry")
	}
	b.commit(205, false)
	if got := b.take(); !got.hurry {
		t.Error("when it is reached: no hurry")
	}
	b.commit(300, false)
	if got := b.take(); got.hurry || len(b.wanted) > mostWanted {
		t.Errorf("later: hurry %t, %d remembered", got.hurry, len(b.wanted))
	}
}

// A message by which somebody waits has the position stored at once, where it stands between transactions and belongs
// to none; one that follows at once waits for the next sign of life.
func TestWait_AMessageHasThePositionStored(t *testing.T) {
	message := func(transactional bool, prefix string) *pglogrepl.LogicalDecodingMessage {
		return &pglogrepl.LogicalDecodingMessage{LSN: 50, Transactional: transactional, Prefix: prefix}
	}
	for name, c := range map[string]struct {
		m      *pglogrepl.LogicalDecodingMessage
		tx     *transaction
		before time.Time
		hurry  bool
		upTo   pglogrepl.LSN
	}{
		"a wait":                 {m: message(false, walmsg.Wait), hurry: true, upTo: 50},
		"right after another":    {m: message(false, walmsg.Wait), before: time.Now().Add(time.Minute)},
		"within a transaction":   {m: message(false, walmsg.Wait), tx: &transaction{}},
		"of a transaction":       {m: message(true, walmsg.Wait)},
		"of another application": {m: message(false, "outbox")},
	} {
		ses := &session{s: New(Options{Log: slog.New(slog.DiscardHandler)}), buffer: newBuffer(), tx: c.tx, hurried: c.before}
		ses.logicalMessage(t.Context(), c.m)
		if got := ses.buffer.take(); got.hurry != c.hurry || got.upTo != c.upTo {
			t.Errorf("%s: hurry %t up to %s, want %t and %s", name, got.hurry, got.upTo, c.hurry, c.upTo)
		}
		ses.buffer.commit(60, false)
		if again := c.before.After(time.Now()); ses.buffer.take().hurry != again {
			t.Errorf("%s: the position is stored with the next sign of life: %t, want %t", name, !again, again)
		}
	}
}

// A question is handed on where it stands between transactions and belongs to none; nothing else is.
func TestAsk_AMessageIsHandedOn(t *testing.T) {
	for name, c := range map[string]struct {
		transactional bool
		prefix        string
		tx            *transaction
		handed        bool
	}{
		"a question":             {prefix: walmsg.Ask, handed: true},
		"of a transaction":       {prefix: walmsg.Ask, transactional: true},
		"within a transaction":   {prefix: walmsg.Ask, tx: &transaction{}},
		"of another application": {prefix: "outbox"},
	} {
		var handed []byte
		ses := &session{
			s:      New(Options{Log: slog.New(slog.DiscardHandler), Asked: func(content []byte, _ bool) { handed = content }}),
			buffer: newBuffer(), tx: c.tx,
		}
		ses.logicalMessage(t.Context(), &pglogrepl.LogicalDecodingMessage{
			LSN: 50, Transactional: c.transactional, Prefix: c.prefix, Content: []byte("what?"),
		})
		if (string(handed) == "what?") != c.handed {
			t.Errorf("%s: %q is handed on", name, handed)
		}
		if got := ses.buffer.take(); got.hurry || got.upTo != 0 || len(got.changes)+len(got.scans) > 0 {
			t.Errorf("%s: it moves the checkpoint", name)
		}
	}
	ses := &session{s: New(Options{Log: slog.New(slog.DiscardHandler)}), buffer: newBuffer()}
	ses.logicalMessage(t.Context(), &pglogrepl.LogicalDecodingMessage{Prefix: walmsg.Ask}) // nobody answers
}
