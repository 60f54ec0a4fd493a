package database

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"sync/atomic"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

// Anything can come through a slot, and any role that can log in can write logical messages: a million a second, or one
// of a gigabyte. So each frame of the stream is checked before it is read in full. Messages that cannot be ours are
// skipped, and stubs report their number. In a change larger than LargestChange, long values are hashed while they are
// read and replaced by their hashes.
const (
	// LargestChange is the largest row change that is passed on unchanged.
	LargestChange = 1 << 20
	largestOther  = 256 << 20
)

// Stub is the message type that replaces skipped messages. It is followed by their type and their number in four bytes.
const Stub = 0

const (
	frameHeader = 5             // type and length
	dataHeader  = 1 + 8 + 8 + 8 // of XLogData: its type, start, end, time
	stubSize    = 1 + 1 + 4     // Stub, the type, how many
	copyData    = 'd'           // message type of a frame of the stream
	xLogData    = 'w'           // a frame with WAL
	message     = 'M'           // a logical message of pgoutput
	readAhead   = 64 << 10
	mostDropped = 10_000 // messages per stub
)

// MostHints is how many hints of a transaction are read: each has a signature to check. One more is passed on, so that
// the reader knows that some are missing.
const MostHints = 64

// frames shortens the server's side of a replication connection: see above. It changes nothing else.
type frames struct {
	r       *bufio.Reader
	head    []byte       // goes out before the rest
	left    int          // bytes of this frame still to pass on
	skip    int          // bytes of this frame still to skip
	change  *change      // the change that is being shortened
	wait    []byte       // the last frame that someone waits for, not passed on yet: it replaces the earlier ones
	dropped uint32       // skipped messages that no stub has reported yet
	hints   int          // hints of the transaction passed on so far
	heard   atomic.Int64 // bytes that the server sent
	last    [dataHeader]byte
	stubbed [frameHeader + dataHeader + stubSize]byte
}

func newFrames(r io.Reader) *frames {
	f := &frames{}
	f.r = bufio.NewReaderSize(counted{r, &f.heard}, readAhead)
	return f
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Read implements io.Reader. An error, such as a timeout, loses nothing: the next Read continues there.
func (f *frames) Read(p []byte) (int, error) {
	for {
		switch {
		case f.change != nil:
			if err := f.change.shorten(f.r); err != nil {
				return 0, err
			}
			f.head, f.change = f.change.short, nil
		case len(f.head) > 0:
			n := copy(p, f.head)
			if f.head = f.head[n:]; len(f.head) == 0 {
				f.head = nil // it may be large
			}
			return n, nil
		case f.left > 0:
			n, err := f.r.Read(p[:min(len(p), f.left)])
			f.left -= n
			return n, err
		case f.skip > 0:
			n, err := f.r.Discard(f.skip)
			if f.skip -= n; err != nil {
				return 0, err
			}
		case len(f.wait) > 0 && f.r.Buffered() == 0:
			f.handWait()
		case f.dropped >= mostDropped || f.dropped > 0 && f.r.Buffered() == 0:
			f.stub(message, f.dropped)
			f.dropped = 0
		default:
			if err := f.begin(); err != nil {
				return 0, err
			}
		}
	}
}

// begin reads the header of the next frame and decides how to pass it on.
func (f *frames) begin() error {
	const withType = frameHeader + dataHeader + 1
	h, err := f.r.Peek(frameHeader)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(h[1:])) + 1 // the size does not include the type
	var kind byte
	if h[0] == copyData && size >= withType {
		if h, err = f.r.Peek(withType); err != nil {
			return err
		}
		if h[frameHeader] == xLogData {
			kind = h[withType-1]
		}
	}
	if kind == 'B' {
		f.hints = 0
	}
	if kind == message {
		if handled, err := f.message(size); handled || err != nil {
			return err
		}
	}
	if len(f.wait) > 0 {
		f.handWait()
		return nil
	}
	switch {
	case size <= LargestChange || kind == 0:
		f.left = max(size, frameHeader)
	case kind == 'I' || kind == 'U' || kind == 'D':
		f.change = &change{rest: size, sum: sha256.New()}
	case size > largestOther:
		copy(f.last[:], h[frameHeader:])
		f.stub(kind, 1)
		f.skip = size
	default:
		f.left = size
	}
	return nil
}

// message handles a logical message by its flags, prefix and content length. It returns false if the message is passed
// on like any other frame.
func (f *frames) message(size int) (handled bool, err error) {
	const (
		flags  = frameHeader + dataHeader + 1
		prefix = flags + 1 + 8
		most   = 64 // length of one of our prefixes and the rest
	)
	h, err := f.r.Peek(min(size, prefix+most))
	if err != nil {
		return false, err
	}
	if len(h) > prefix {
		name, _, ended := bytes.Cut(h[prefix:], []byte{0})
		ours := ended && walmsg.Ours(h[flags] == 1, name, size-prefix-len(name)-1-4)
		if ours && string(name) == walmsg.HintPrefix {
			f.hints++
			ours = f.hints <= MostHints+1
		}
		if ours && string(name) != walmsg.Wait {
			return false, nil
		}
		if ours {
			f.wait = append(f.wait[:0], h...)
			f.skip = size
			return true, nil
		}
	}
	copy(f.last[:], h[frameHeader:])
	f.dropped++
	f.skip = size
	return true, nil
}

// handWait passes on the last frame that someone waits for.
func (f *frames) handWait() {
	f.head, f.wait = f.wait, f.wait[:0]
}

// stub passes on a stub with the last header that was kept.
func (f *frames) stub(kind byte, count uint32) {
	f.head = append(f.stubbed[:0], copyData)
	f.head = binary.BigEndian.AppendUint32(f.head, frameHeader-1+dataHeader+stubSize)
	f.head = append(f.head, f.last[:]...)
	f.head = append(f.head, Stub, kind)
	f.head = binary.BigEndian.AppendUint32(f.head, count)
}
