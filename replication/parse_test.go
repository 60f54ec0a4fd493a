package replication

import (
	"errors"
	"testing"

	"github.com/jackc/pglogrepl"
)

func TestParse_TurnsAPanicIntoAnError(t *testing.T) {
	for _, data := range []string{
		"", "I0000N000", "B", "R", "U0000", "\x00", "T0000", "T\xff\xff\xff\xff\x00",
		"U0000N00b00\b\b\b\b\b000", "I0000N\x00\x01t\xff\xff\xff\xffx",
	} {
		if m, err := parse([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("parse(%q) = %v, %v, want ErrMalformed", data, m, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("I0000N000"))
	f.Add([]byte("B\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("R\x00\x00\x00\x01public\x00docs\x00d\x00\x01\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff"))
	f.Add([]byte("U\x00\x00\x00\x01N\x00\x01t\x00\x00\x00\x011"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err == nil && m == nil {
			t.Error("neither a message nor an error")
		}
		if u, ok := m.(*pglogrepl.UpdateMessage); ok {
			_, _ = tuple(u.NewTuple, 3)
		}
	})
}

func TestTuple_RefusesAnotherWidth(t *testing.T) {
	_, err := tuple(&pglogrepl.TupleData{Columns: make([]*pglogrepl.TupleDataColumn, 2)}, 3)
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("err = %v, want ErrMalformed", err)
	}
}
