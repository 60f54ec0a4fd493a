package database

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

// framed returns one message of a server.
func framed(typ byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{typ}, uint32(len(body)+4)), body...)
}

// streamed returns a message of pgoutput in the stream.
func streamed(body []byte) []byte {
	header := append([]byte{xLogData}, "position"+"endofwal"+"thetime."...)
	return framed(copyData, append(header, body...))
}

// logical returns a logical message.
func logical(transactional bool, prefix string, content int) []byte {
	b := []byte{message, 0}
	if transactional {
		b[1] = 1
	}
	b = append(b, "position"+prefix+"\x00"...)
	b = binary.BigEndian.AppendUint32(b, uint32(content))
	return streamed(append(b, make([]byte, content)...))
}

// value returns a value of a tuple; with the kind Hashed, the hash of text.
func value(kind byte, text string) []byte {
	if kind == Hashed {
		sum := sha256.Sum256([]byte(text))
		text = string(sum[:])
	}
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(text)))
	return append(b, text...)
}

// changed returns a change of a row.
func changed(kind byte, tuples ...[][]byte) []byte {
	b := append([]byte{kind}, "oid."...)
	for _, values := range tuples {
		b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
		b = append(b, bytes.Join(values, nil)...)
	}
	return streamed(b)
}

// stub returns the replacement of skipped messages.
func stub(kind byte, count uint32) []byte {
	return streamed(binary.BigEndian.AppendUint32([]byte{Stub, kind}, count))
}

// comes checks what is passed on of a server's stream, whatever portions it arrives in.
func comes(t *testing.T, sent, want []byte) {
	t.Helper()
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(sent), "in halves": iotest.HalfReader(bytes.NewReader(sent)),
		"with its end": iotest.DataErrReader(bytes.NewReader(sent)), "with pauses": &faltering{r: bytes.NewReader(sent)},
	} {
		var got []byte
		f := newFrames(r)
		for buf := make([]byte, 777); ; {
			n, err := f.Read(buf)
			got = append(got, buf[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil && !errors.Is(err, iotest.ErrTimeout) {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(summed(got), summed(want)) {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(want))
		}
	}
}

// summed joins stubs of messages, whose number per stub may vary.
func summed(frames []byte) (sum []byte) {
	var count uint32
	head := stub(message, 0)
	for len(frames) > 0 {
		next := frames[:1+binary.BigEndian.Uint32(frames[1:])]
		frames = frames[len(next):]
		if bytes.HasPrefix(next, head[:len(head)-4]) {
			count += binary.BigEndian.Uint32(next[len(next)-4:])
			continue
		}
		sum = append(sum, next...)
	}
	return binary.BigEndian.AppendUint32(sum, count)
}

// faltering alternates between 1,000 bytes and a timeout.
type faltering struct {
	r    io.Reader
	late bool
}

func (f *faltering) Read(p []byte) (int, error) {
	if f.late = !f.late; f.late {
		return 0, iotest.ErrTimeout
	}
	return f.r.Read(p[:min(len(p), 1000)])
}

func TestP9_FramesOfStrangersAreReadPast(t *testing.T) {
	t.Parallel()
	question := 1 + 32 + 8 + 8
	keepalive := framed(copyData, []byte("k................."))
	ours := [][]byte{
		logical(false, walmsg.Wait, 0), keepalive, logical(false, walmsg.Ask, question),
		logical(false, walmsg.Ask, question+walmsg.LongestTexts),
		keepalive, framed('T', make([]byte, 1<<20)), framed(copyData, nil), changed('I', [][]byte{value('t', "1")}),
	}
	strange := [][]byte{
		logical(false, "outbox", 0), logical(true, "outbox", 1<<20), logical(false, "", 7),
		logical(true, strings.Repeat("x", 300), 7), logical(false, walmsg.Ask+"s", question), logical(false, walmsg.Wait[1:], 0),
		logical(true, "embedsidecar", 9), logical(false, "embedsidecar", 0), logical(true, "embedsidecar", 64<<20+1),
		logical(true, walmsg.Wait, 0), logical(false, walmsg.Wait, 1), logical(true, walmsg.Ask, question),
		logical(false, walmsg.Ask, question-1), logical(false, walmsg.Ask, question+walmsg.LongestTexts+1),
		streamed([]byte{message}),
	}
	comes(t, bytes.Join(slices.Concat(ours, strange, ours[:1], strange[:2], ours[1:2]), nil),
		bytes.Join(append(ours, ours[0], ours[1], stub(message, uint32(len(strange)+2))), nil))
}

// Of several waiting frames only the last is passed on, when there is nothing else to read, but before anything else.
func TestP9_OneFrameStandsForAllWhoWait(t *testing.T) {
	t.Parallel()
	wait, strange, change := logical(false, walmsg.Wait, 0), logical(false, "outbox", 1),
		changed('I', [][]byte{value('t', "1")})
	last := bytes.Replace(wait, []byte("position"), []byte("POSITION"), 1)
	sent := slices.Concat([][]byte{change}, slices.Repeat([][]byte{wait, strange}, 50),
		[][]byte{last, strange, change, wait, last})
	got, err := io.ReadAll(newFrames(bytes.NewReader(bytes.Join(sent, nil))))
	if want := slices.Concat(change, last, change, last, stub(message, 51)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// BenchmarkFrames_OfStrangers skips strangers' small messages.
func BenchmarkFrames_OfStrangers(b *testing.B) {
	strange := bytes.Repeat(logical(false, "outbox", 1), 1000)
	buf := make([]byte, 8192)
	f := newFrames(&endless{of: strange})
	b.ReportAllocs()
	for read := 0; read < b.N; read += mostDropped {
		if _, err := f.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// TestP9_FramesOfStrangersTakeNoMemory checks the memory of that benchmark.
func TestP9_FramesOfStrangersTakeNoMemory(t *testing.T) {
	f := newFrames(&endless{of: bytes.Repeat(logical(false, "outbox", 1), 1000)})
	buf := make([]byte, 8192)
	if n := testing.AllocsPerRun(100, func() { _, _ = f.Read(buf) }); n > 0 {
		t.Errorf("%d messages that are read past take memory %.0f times", mostDropped, n)
	}
}

// endless repeats the same bytes.
type endless struct {
	of []byte
	at int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.of[e.at:])
	e.at = (e.at + n) % len(e.of)
	return n, nil
}

func TestP9_ALongValueComesAsItsHash(t *testing.T) {
	t.Parallel()
	key, null, unchanged := value('t', "17"), []byte{'n'}, []byte{'u'}
	vector, most := strings.Repeat("0.123,", longestKept/6), strings.Repeat("x", longestKept)
	long, longer := strings.Repeat("long ", 3<<20), strings.Repeat("longer ", 2<<20)
	for kind, c := range map[byte]struct{ sent, want [][][]byte }{
		'I': {
			[][][]byte{{value('t', long), key, null, value('t', longer), value('t', "text")}},
			[][][]byte{{value(Hashed, long), key, null, value(Hashed, longer), value('t', "text")}},
		},
		'U': {
			[][][]byte{{key, unchanged, value('t', long)}, {key, value('t', longer), value('t', vector), value('t', "")}},
			[][][]byte{{key, unchanged, value(Hashed, long)}, {key, value(Hashed, longer), value('t', vector), value('t', "")}},
		},
		'D': {
			[][][]byte{append(slices.Repeat([][]byte{value('t', most)}, 12), value('t', long[:longKept]))},
			[][][]byte{slices.Concat(slices.Repeat([][]byte{value('t', most)}, 7),
				slices.Repeat([][]byte{value(Hashed, most)}, 5),
				[][]byte{value('t', long[:longKept])})},
		},
	} {
		small := changed(kind, [][]byte{key})
		comes(t, bytes.Join([][]byte{small, changed(kind, c.sent...), small}, nil),
			bytes.Join([][]byte{small, changed(kind, c.want...), small}, nil))
	}
	as := changed('U', [][]byte{key, value('t', long[:LargestChange/2])})
	comes(t, as, as)
}
