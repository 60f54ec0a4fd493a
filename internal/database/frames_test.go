package database

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// frame is one message of a server, in the stream if kind says what pgoutput calls it.
func frame(typ byte, kind byte, size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i)
	}
	if typ == copyData {
		body[0] = xLogData
		body[dataHeader] = kind
	}
	return append(binary.BigEndian.AppendUint32([]byte{typ}, uint32(size+4)), body...)
}

func TestFrames_ShortenWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	small, row := frame(copyData, 'U', 1000), frame(copyData, 'U', 2*LargestMessage)
	other, big := frame('T', 0, 2*LargestMessage), frame(copyData, message, 2*LargestMessage)
	stub := append(binary.BigEndian.AppendUint32([]byte{copyData}, 4+dataHeader+stubSize),
		big[frameHeader:frameHeader+dataHeader]...)
	stub = append(stub, Stub, message, big[peeked-4], big[peeked-3], big[peeked-2], big[peeked-1])
	sent := bytes.Join([][]byte{small, row, big, small, other, big}, nil)
	want := bytes.Join([][]byte{small, row, stub, small, other, stub}, nil)
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(sent), "in halves": iotest.HalfReader(bytes.NewReader(sent)),
		"with its end": iotest.DataErrReader(bytes.NewReader(sent)),
	} {
		got, err := io.ReadAll(newFrames(r))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(want))
		}
	}
}

// TestFrames_GoOnAfterATimeout: the deadline of a read passes anywhere, also inside what is skipped.
func TestFrames_GoOnAfterATimeout(t *testing.T) {
	t.Parallel()
	sent := append(frame(copyData, message, 2*LargestMessage), frame(copyData, 'I', 100)...)
	f := newFrames(&faltering{r: bytes.NewReader(sent)})
	var got []byte
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
	if want := frameHeader + dataHeader + stubSize + frameHeader + 100; len(got) != want {
		t.Errorf("%d bytes, want %d", len(got), want)
	}
}

// faltering gives 1,000 bytes and then a timeout, and so on.
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
