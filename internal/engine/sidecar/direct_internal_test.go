package sidecar

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/queue"
)

// TestP1_WhatIsLeftIsOfTheLastTransaction: a change that is never processed directly, e.g. one hinted low, may follow
// another of its row that is left, too. Their task waits for the transaction of the last one.
func TestP1_WhatIsLeftIsOfTheLastTransaction(t *testing.T) {
	t.Parallel()
	s := &Sidecar{running: map[int32]*running{}}
	d, err := s.workNow(t.Context(), 1, []queue.Change{
		{PipelineID: 1, RowKey: "1", XID: 11, LSN: 10}, {PipelineID: 1, RowKey: "1", XID: 12, LSN: 20, Later: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := queue.Merge(d.Left); len(got) != 1 || got[0].XID != 12 || got[0].FirstLSN != 10 || got[0].LSN != 20 {
		t.Errorf("left: %+v", got)
	}
}
