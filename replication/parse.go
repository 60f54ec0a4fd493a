package replication

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// ErrMalformed means that the stream contains bytes that pgoutput does not write. The session ends without confirming
// them.
var ErrMalformed = errors.New("malformed replication message")

// parse reads one pgoutput message. pglogrepl trusts its input and can panic; parse returns an error instead.
func parse(data []byte) (m pglogrepl.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("%w: decode of type %q panicked: %v", ErrMalformed, typeOf(data), r)
		}
	}()
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrMalformed)
	}
	if !whole(data) {
		return nil, fmt.Errorf("%w: type %q claims more than there is", ErrMalformed, typeOf(data))
	}
	m, err = pglogrepl.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: type %q: %w", ErrMalformed, typeOf(data), err)
	}
	return m, nil
}

// whole reports whether the lengths and counts in a message fit into it. pglogrepl allocates them unchecked, up to 4
// GiB for a column, and out of memory cannot be recovered.
func whole(data []byte) bool {
	const oid = 4
	rest := data[1:]
	switch data[0] {
	case 'I', 'U', 'D':
		if len(rest) < oid {
			return false
		}
		for rest = rest[oid:]; len(rest) > 0; {
			var ok bool
			if rest, ok = afterTuple(rest[1:]); !ok { // after the tuple's kind byte
				return false
			}
		}
	case 'T':
		return len(rest) >= oid && uint64(binary.BigEndian.Uint32(rest))*oid <= uint64(len(rest))
	}
	return true
}

// afterTuple returns the bytes after a tuple. ok is false if the tuple exceeds the data.
func afterTuple(data []byte) (rest []byte, ok bool) {
	const count, length = 2, 4
	if len(data) < count {
		return nil, false
	}
	n, rest := int(binary.BigEndian.Uint16(data)), data[count:]
	for range n {
		if len(rest) == 0 {
			return nil, false
		}
		kind := rest[0]
		rest = rest[1:]
		if kind == null || kind == unchanged {
			continue
		}
		if len(rest) < length {
			return nil, false
		}
		size := uint64(binary.BigEndian.Uint32(rest))
		if rest = rest[length:]; size > uint64(len(rest)) {
			return nil, false
		}
		rest = rest[size:]
	}
	return rest, true
}

// parseXLogData reads the frame around a pgoutput message.
func parseXLogData(data []byte) (x pglogrepl.XLogData, err error) {
	x, err = pglogrepl.ParseXLogData(data)
	if err != nil {
		return x, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return x, nil
}

// parseKeepalive reads a keepalive of the server.
func parseKeepalive(data []byte) (k pglogrepl.PrimaryKeepaliveMessage, err error) {
	k, err = pglogrepl.ParsePrimaryKeepaliveMessage(data)
	if err != nil {
		return k, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return k, nil
}

func typeOf(data []byte) string { return string(data[:min(1, len(data))]) }

// tuple checks that a decoded tuple has as many columns as its relation.
func tuple(t *pglogrepl.TupleData, columns int) ([]*pglogrepl.TupleDataColumn, error) {
	if t == nil {
		return nil, nil
	}
	if len(t.Columns) != columns {
		return nil, fmt.Errorf("%w: a row of %d columns in a relation of %d", ErrMalformed, len(t.Columns), columns)
	}
	return t.Columns, nil
}
