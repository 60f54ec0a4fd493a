package replication

import (
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// ErrMalformed means that bytes of the stream are not what pgoutput writes. The session ends; nothing of it was confirmed.
var ErrMalformed = errors.New("malformed replication message")

// parse reads one pgoutput message. pglogrepl trusts its input and panics on some; this border turns that into an error.
func parse(data []byte) (m pglogrepl.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("%w: decode of type %q panicked: %v", ErrMalformed, typeOf(data), r)
		}
	}()
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrMalformed)
	}
	m, err = pglogrepl.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: type %q: %w", ErrMalformed, typeOf(data), err)
	}
	return m, nil
}

// parseXLogData reads the frame around a pgoutput message.
func parseXLogData(data []byte) (x pglogrepl.XLogData, err error) {
	x, err = pglogrepl.ParseXLogData(data)
	if err != nil {
		return x, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return x, nil
}

// parseKeepalive reads the server's sign of life.
func parseKeepalive(data []byte) (k pglogrepl.PrimaryKeepaliveMessage, err error) {
	k, err = pglogrepl.ParsePrimaryKeepaliveMessage(data)
	if err != nil {
		return k, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return k, nil
}

func typeOf(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return string(data[:1])
}

// tuple checks that a decoded tuple has the columns its relation promised.
func tuple(t *pglogrepl.TupleData, columns int) ([]*pglogrepl.TupleDataColumn, error) {
	if t == nil {
		return nil, nil
	}
	if len(t.Columns) != columns {
		return nil, fmt.Errorf("%w: a row of %d columns in a relation of %d", ErrMalformed, len(t.Columns), columns)
	}
	return t.Columns, nil
}
