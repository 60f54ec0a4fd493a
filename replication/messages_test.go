package replication

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

// The messages of pgoutput, as bytes.

func beginBytes(final pglogrepl.LSN, xid uint32) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(final))
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, 0), xid)
}

func commitBytes(end pglogrepl.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(end-1))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(end)), 0)
}

// rowBytes is a row of texts behind what begins a message.
func rowBytes(before string, texts ...string) []byte {
	b := binary.BigEndian.AppendUint16([]byte(before), uint16(len(texts)))
	for _, text := range texts {
		b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(text))), text...)
	}
	return b
}

func messageBytes(transactional byte, prefix string, content []byte) []byte {
	b := append([]byte{'M', transactional}, make([]byte, 8)...)
	b = append(append(b, prefix...), 0)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(content))), content...)
}

func truncateBytes(relation uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{'T', 0, 0, 0, 1, 0}, relation)
}

const (
	insertOf1 = "I\x00\x00\x00\x01N"
	updateOf1 = "U\x00\x00\x00\x01N"
	deleteOf1 = "D\x00\x00\x00\x01K"
)

func decodeAll(t *testing.T, ses *session, messages ...[]byte) {
	t.Helper()
	for i, m := range messages {
		if _, err := ses.copyData(t.Context(), walData(50, 60, m).Data); err != nil {
			t.Fatalf("message %d, %q: %v", i, m[:1], err)
		}
	}
}

func TestDecode_OfATransactionOneTaskForEachRow(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	decodeAll(t, ses,
		beginBytes(1000, 77), []byte("Y\x00\x00\x00\x01public\x00x\x00"), []byte("O\x00\x00\x00\x00\x00\x00\x00\x01a\x00"),
		rowBytes(insertOf1, "1", "t", "b", "[1]"), rowBytes(updateOf1, "2", "t", "b", "[1]"),
		rowBytes(deleteOf1, "3", "", "", ""), truncateBytes(1), commitBytes(1010))
	got := all(ses.buffer)
	if !slices.Equal(keysOf(got.changes), []string{"1", "2", "3"}) || !slices.Equal(scansOf(got), []int32{7}) ||
		got.upTo != 1010 || ses.tx != nil {
		t.Errorf("rows %q, scans %v, up to %s", keysOf(got.changes), got.scans, got.upTo)
	}
	for _, c := range got.changes {
		if c.XID != 77 || c.LSN != 1000 {
			t.Errorf("%+v: of another transaction", c)
		}
	}
	s := &ses.s.stats
	if s.Changes.Load() != 3 || s.Transactions.Load() != 1 || s.ReceivedLSN.Load() != 1010 || s.ServerLSN.Load() != 60 ||
		s.Bytes.Load() == 0 {
		t.Error("what was read is not counted")
	}
}

func TestDecode_SkipsWhatWasDurableBefore(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	ses.start = 2000
	decodeAll(t, ses, beginBytes(1000, 77), rowBytes(insertOf1, "1", "t", "b", "[1]"), commitBytes(1010),
		beginBytes(2000, 78), rowBytes(insertOf1, "2", "t", "b", "[1]"), commitBytes(2010))
	if got := all(ses.buffer); !slices.Equal(keysOf(got.changes), []string{"2"}) || ses.s.stats.Replayed.Load() != 1 {
		t.Errorf("rows %q, %d transactions came again", keysOf(got.changes), ses.s.stats.Replayed.Load())
	}
}

// P6: the change of a write-back names what the ledger must be like, for no task to be made of it. No message of
// anybody's hides it.
func TestP6_AWriteBackIsToBeComparedWithTheLedger(t *testing.T) {
	t.Parallel()
	vector := pipeline.VectorHash([]float32{1, 2.5})
	source := pipeline.SourceHash{}.AppendColumn([]byte("t")).AppendColumn([]byte("b"))
	want := pipeline.Pattern{}.Known(source).Known(vector[:])
	for _, message := range [][]byte{messageBytes(1, "embedsidecar", []byte("anything")), messageBytes(1, "other", nil)} {
		ses := opened(docs(func(*pipeline.Pipeline) {}))
		decodeAll(t, ses, beginBytes(1000, 77), message, rowBytes(updateOf1, "1", "t", "b", "[1,2.5]"), commitBytes(1010))
		if got := all(ses.buffer); len(got.changes) != 1 || !slices.Equal(got.changes[0].Unchanged, want) {
			t.Errorf("changes %+v, want one that the ledger may drop if it is like %q", got.changes, want)
		}
	}
}

// A change of a partition is one of the table above it, and of each pipeline once.
func TestRoutes_LeadFromAPartitionToItsRoot(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	leaf := announced("id", "title", "body", "embedding")
	leaf.RelationID = 9
	ses.announced(leaf, []uint32{1, 1, 5})
	ses.tx = begun()
	if err := ses.rowChange(9, tupleOf(values("1", "t", "b", "NULL")), nil, true); err != nil {
		t.Fatal(err)
	}
	if got := all(ses.buffer); !slices.Equal(keysOf(got.changes), []string{"1"}) {
		t.Errorf("rows %q", keysOf(got.changes))
	}
}

// A keepalive within a transaction moves nothing: what was read of it is not whole.
func TestKeepalive_WithinATransactionMovesNothing(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	decodeAll(t, ses, beginBytes(1000, 77), rowBytes(insertOf1, "1", "t", "b", "[1]"))
	if reply, err := ses.copyData(t.Context(), keepalive(5000, true).Data); err != nil || !reply {
		t.Fatal(reply, err)
	}
	if got := all(ses.buffer); got.upTo != 0 || ses.pos.received >= 5000 {
		t.Errorf("up to %s, received %s", got.upTo, ses.pos.received)
	}
}

func TestDecode_RefusesMessagesThatAreNotWhole(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"none": nil, "a begin that is cut off": []byte("B000"), "a kind that is not known": []byte("?"),
		"a truncate of more than there is": []byte("T\xff\xff\xff\xff\x00"),
	} {
		ses := opened(docs(func(*pipeline.Pipeline) {}))
		if err := ses.decode(t.Context(), data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hintBytes is a hint of a transaction.
func hintBytes(key []byte, xid uint64, word string) []byte {
	body := append(binary.BigEndian.AppendUint64(nil, xid), word...)
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return messageBytes(1, walmsg.HintPrefix, append(mac.Sum([]byte{1}), body...))
}

// A hint counts for the changes of its transaction: urgent and low for all, skip for those that come after it.
func TestHint_OfATransaction(t *testing.T) {
	t.Parallel()
	key := walmsg.HintKey([]byte("secret"))
	insert := func(id string) []byte { return rowBytes(insertOf1, id, "t", "b", "[1]") }
	update := func(id string) []byte { return rowBytes(updateOf1, id, "t", "b", "[1]") }
	for name, c := range map[string]struct {
		messages                   [][]byte
		want                       []string
		urgent, low, skips, forged int64
	}{
		"urgent": {[][]byte{insert("1"), hintBytes(key, 77, "u"), update("2")}, []string{"1 3", "2 3"}, 1, 0, 0, 0},
		"low":    {[][]byte{insert("1"), hintBytes(key, 1<<32|77, "l")}, []string{"1 0 later"}, 0, 1, 0, 0},
		"skip": {
			[][]byte{insert("1"), hintBytes(key, 77, "s"), insert("2"), update("3"), rowBytes(deleteOf1, "4", "", "", "")},
			[]string{"1 1", "2 1 later new", "3 1 later", "4 1"},
			0, 0, 1, 0,
		},
		"skip, and then no more": {
			[][]byte{hintBytes(key, 77, "s"), update("1"), hintBytes(key, 77, "u"), update("2")},
			[]string{"1 3 later", "2 3"},
			1, 0, 1, 0,
		},
		"more than are read": {
			slices.Concat(
				slices.Repeat([][]byte{hintBytes(key, 77, "s")}, database.MostHints), [][]byte{update("1")},
				slices.Repeat([][]byte{hintBytes(key, 77, "s")}, 2), [][]byte{update("2")},
			), []string{"1 1 later", "2 1"}, 0, 0, database.MostHints, 0,
		},
		"forged": {
			[][]byte{hintBytes([]byte("guess"), 77, "s"), hintBytes(key, 78, "u"), update("1")}, []string{"1 1"}, 0, 0, 0, 2,
		},
	} {
		ses := opened(docs(func(p *pipeline.Pipeline) { p.Priority = pipeline.Normal }))
		ses.s.o.HintKey = key
		decodeAll(t, ses, append(append([][]byte{beginBytes(1000, 77)}, c.messages...), commitBytes(1010))...)
		var got []string
		for _, change := range ses.buffer.take().changes {
			line := fmt.Sprint(change.RowKey, " ", change.Lane)
			if change.Later {
				line += " later"
			}
			if change.Seen != nil && change.Seen[0] == 1 {
				line += " new"
			}
			got = append(got, line)
		}
		s := &ses.s.stats
		if !slices.Equal(got, c.want) || s.Urgent.Load() != c.urgent || s.Low.Load() != c.low || s.Skips.Load() != c.skips ||
			s.Forged.Load() != c.forged {
			t.Errorf("%s: %q, want %q; counted %d %d %d %d", name, got, c.want, s.Urgent.Load(), s.Low.Load(), s.Skips.Load(),
				s.Forged.Load())
		}
	}
}
