package rows

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// told answers a queued statement with one row.
type told struct {
	pgx.BatchResults
	values []bool
}

func (r told) QueryRow() pgx.Row { return r }

func (r told) Scan(into ...any) error {
	for i := range into {
		*into[i].(*bool) = r.values[i] //nolint:forcetypeassert // the statement gives these
	}
	return nil
}

// TestTrust_WhatStandsInTheEmbeddingTablesPlace: nothing is written into another table, nor into one with a trigger.
func TestTrust_WhatStandsInTheEmbeddingTablesPlace(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"table", "chunks"} {
		for want, c := range map[error]struct{ same, owner, trigger bool }{
			nil: {true, true, false}, ErrOtherTable: {false, true, true}, ErrOtherOwner: {true, false, false},
			ErrTrigger: {true, true, true},
		} {
			p := shapes()[shape]
			p.IntoOID = 4711
			batch := &pgx.Batch{}
			if err := New(p, nil, Options{}).QueueGuard(batch, nil); err != nil {
				t.Fatal(err)
			}
			guard := batch.QueuedQueries[1]
			if err := guard.Fn(told{values: []bool{c.same, c.owner, c.trigger}}); !errors.Is(err, want) {
				t.Errorf("%s: %+v: %v, want %v", shape, c, err, want)
			}
		}
	}
}

// TestP4_ARowIsFoundByThePartitionOfItsKey: the server leaves out the partitions that cannot hold one of the keys.
func TestP4_ARowIsFoundByThePartitionOfItsKey(t *testing.T) {
	t.Parallel()
	for shape, p := range shapes() {
		p.Key[0].Routes = true
		table := New(p, nil, Options{})
		if !strings.Contains(table.sql.read.sql, " = ANY (") && !strings.Contains(table.sql.read.sql, "=) ANY (") {
			t.Errorf("%s: no values of the partition key: %s", shape, table.sql.read.sql)
		}
		keys := []string{"1", "2"}
		if len(p.Key) > 1 {
			keys = []string{"1|x", "2|y"}
		}
		args, err := table.sql.read.args(p, keys, values{"texts": 1 << 20})
		if err != nil || !strings.Contains(fmt.Sprint(args...), `{"1","2"}`) {
			t.Errorf("%s: %v, %v", shape, args, err)
		}
	}
}
