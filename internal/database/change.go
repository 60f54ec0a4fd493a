package database

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash"
)

// Hashed is the kind of a value that was replaced by its SHA-256. pgoutput uses this kind for binary values, which we
// never request.
const Hashed = 'b'

const (
	longKept    = 8 << 10   // bytes of a value that is always passed on unchanged, such as a key
	longestKept = 512 << 10 // of one that is passed on if there is room: the text of a vector is shorter
	roomForLong = 4 << 20
)

var errChange = errors.New("a change in the stream is not in pgoutput's format")

// change is a frame with a row change whose long values are hashed while they are read. Other parts are copied.
type change struct {
	rest    int // bytes of the frame still to read
	columns int // columns of the tuple still to read
	keep    int // bytes to copy
	hash    int // bytes to hash
	begun   bool
	sum     hash.Hash
	short   []byte // the shortened frame
}

// shorten reads the frame to its end. It can be called again after an error.
func (c *change) shorten(r *bufio.Reader) error {
	for {
		switch {
		case c.keep > 0 || c.hash > 0:
			if err := c.value(r); err != nil {
				return err
			}
		case !c.begun:
			const oid = 4
			c.begun, c.keep = true, frameHeader+dataHeader+1+oid
			c.rest -= c.keep
		case c.columns > 0:
			if err := c.column(r); err != nil {
				return err
			}
		case c.rest == 0:
			binary.BigEndian.PutUint32(c.short[1:], uint32(len(c.short)-1)) //nolint:gosec // fits: the frame was shortened
			return nil
		default: // the kind of a tuple and its columns
			h, err := c.peek(r, 3)
			if err != nil {
				return err
			}
			c.columns = int(binary.BigEndian.Uint16(h[1:]))
			c.take(r, h)
		}
	}
}

// column starts the next column.
func (c *change) column(r *bufio.Reader) error {
	const null, unchanged, header = 'n', 'u', 5
	h, err := c.peek(r, 1)
	if err != nil {
		return err
	}
	if h[0] == null || h[0] == unchanged {
		c.columns--
		c.take(r, h)
		return nil
	}
	if h, err = c.peek(r, header); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(h[1:]))
	if size > c.rest-header {
		return errChange
	}
	c.columns--
	c.rest -= size
	if size <= longKept || size <= longestKept && len(c.short)+size <= roomForLong {
		c.keep = size
		c.take(r, h)
		return nil
	}
	c.hash = size
	c.rest -= header
	c.short = append(c.short, Hashed)
	c.short = binary.BigEndian.AppendUint32(c.short, uint32(c.sum.Size())) //nolint:gosec // 32
	_, err = r.Discard(header)
	return err
}

// value copies or hashes the bytes of a value that have arrived.
func (c *change) value(r *bufio.Reader) error {
	if _, err := r.Peek(1); err != nil {
		return err
	}
	b, err := r.Peek(min(max(c.keep, c.hash), r.Buffered()))
	if err != nil {
		return err
	}
	if c.keep > 0 {
		c.keep -= len(b)
		c.short = append(c.short, b...)
	} else {
		c.hash -= len(b)
		_, _ = c.sum.Write(b) // never fails
		if c.hash == 0 {
			c.short = c.sum.Sum(c.short)
			c.sum.Reset()
		}
	}
	_, err = r.Discard(len(b))
	return err
}

// peek returns the next bytes of the frame.
func (c *change) peek(r *bufio.Reader, n int) ([]byte, error) {
	if n > c.rest {
		return nil, errChange
	}
	return r.Peek(n)
}

// take copies the bytes that were peeked.
func (c *change) take(r *bufio.Reader, h []byte) {
	c.rest -= len(h)
	c.short = append(c.short, h...)
	_, _ = r.Discard(len(h)) // they are buffered
}
