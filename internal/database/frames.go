package database

import (
	"bufio"
	"encoding/binary"
	"io"
)

// What comes through a slot may be of any size, and anybody who may log in can put a logical message of a gigabyte
// into it. A frame of the stream is therefore never held whole unless it is within these sizes: of one that is larger
// a stub is handed on, and the rest is read past. Otherwise a process with less memory than that would die at it, and
// again after each restart, while the slot keeps the WAL.
const (
	// LargestMessage is the largest logical message that is handed on: a mark of ours has less.
	LargestMessage = 256 << 10
	// LargestChange is the largest change of a row that is handed on.
	LargestChange = 256 << 20
)

// Stub is the type of what stands for a message of the stream that is too large: after it come the type that the
// message had and its first four bytes, which for a change are the oid of the table.
const Stub = 0

const (
	frameHeader = 5             // type and length
	dataHeader  = 1 + 8 + 8 + 8 // of XLogData: its type, start, end, time
	stubSize    = 1 + 1 + 4     // Stub, the type, four bytes
	copyData    = 'd'           // a frame of the stream
	xLogData    = 'w'           // with WAL in it
	message     = 'M'           // of pgoutput
	peeked      = frameHeader + dataHeader + 1 + 4
	readAhead   = 64 << 10
)

// frames shortens what a server sends on a replication connection. It changes nothing else.
type frames struct {
	r    *bufio.Reader
	head []byte // comes before what is left
	left int    // of this frame, to hand on
	skip int    // of this frame, to read past
}

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReaderSize(r, readAhead)} }

// Read implements io.Reader. An error, such as a timeout, loses nothing: the next Read goes on where this one stopped.
func (f *frames) Read(p []byte) (int, error) {
	for {
		switch {
		case len(f.head) > 0:
			n := copy(p, f.head)
			f.head = f.head[n:]
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
		default:
			if err := f.begin(); err != nil {
				return 0, err
			}
		}
	}
}

// begin looks at the next frame and decides how it is handed on.
func (f *frames) begin() error {
	h, err := f.r.Peek(frameHeader)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(h[1:])) + 1 // the type is not counted
	if h[0] != copyData || size < LargestMessage {
		f.left = max(size, frameHeader)
		return nil
	}
	if h, err = f.r.Peek(peeked); err != nil {
		return err
	}
	kind := h[frameHeader+dataHeader]
	if h[frameHeader] != xLogData || size <= LargestChange && kind != message {
		f.left = size
		return nil
	}
	f.head = append(f.head[:0], copyData)
	f.head = binary.BigEndian.AppendUint32(f.head, frameHeader-1+dataHeader+stubSize)
	f.head = append(f.head, h[frameHeader:frameHeader+dataHeader]...)
	f.head = append(f.head, Stub, kind)
	f.head = append(f.head, h[peeked-4:]...)
	f.skip = size
	return nil
}
