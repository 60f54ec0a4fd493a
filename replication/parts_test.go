package replication

import (
	"slices"
	"testing"
)

// Where nothing but partitions differs only their rows are compared, and whether rows are gone is asked only where a
// partition is gone or was rewritten.
func TestCatalogueRow_ComparesThePartitionsThatChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known, current string
		changed        []uint32 // nil: all rows
		noneGone       bool
	}{
		"attached":          {`{"a":1,"storage":{"1":"x"}}`, `{"a":1,"storage":{"1":"x","2":"y"}}`, []uint32{2}, true},
		"attached, two":     {`{"storage":{"1":"x"}}`, `{"storage":{"1":"x","2":"y","3":"z"}}`, []uint32{2, 3}, true},
		"detached":          {`{"storage":{"1":"x","2":"y"}}`, `{"storage":{"1":"x"}}`, []uint32{}, false},
		"truncated":         {`{"storage":{"1":"x","2":"y"}}`, `{"storage":{"1":"x","2":"z"}}`, []uint32{2}, false},
		"one for another":   {`{"storage":{"1":"x","2":"y"}}`, `{"storage":{"1":"x","3":"y"}}`, []uint32{3}, false},
		"none differs":      {`{"storage":{"1":"x"}}`, `{"storage":{"1":"x"}}`, []uint32{}, true},
		"the table, too":    {`{"a":1,"storage":{"1":"x"}}`, `{"a":2,"storage":{"1":"x","2":"y"}}`, nil, false},
		"another fact":      {`{"storage":{"1":"x"}}`, `{"a":1,"storage":{"1":"x"}}`, nil, false},
		"nothing known":     {``, `{"storage":{"1":"x"}}`, nil, false},
		"nothing current":   {`{"storage":{"1":"x"}}`, ``, nil, false},
		"no partitions now": {`{"storage":{"1":"x"}}`, `{"storage":7}`, nil, false},
		"none before":       {`{"storage":"x"}`, `{"storage":{"1":"x"}}`, nil, false},
	} {
		row := healthy(func(r *catalogueRow) { r.Known, r.Current = []byte(c.known), []byte(c.current) })
		changed, noneGone := row.parts()
		slices.Sort(changed)
		if !slices.Equal(changed, c.changed) || (changed == nil) != (c.changed == nil) || noneGone != c.noneGone {
			t.Errorf("%s: %v, %t, want %v, %t", name, changed, noneGone, c.changed, c.noneGone)
		}
	}
}
