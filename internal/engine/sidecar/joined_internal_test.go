package sidecar

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_SlowJoinsDoNotHoldUpTheStream: rows that take long to be found are found by a scan for a while, and those of
// other pipelines as ever.
func TestP5_SlowJoinsDoNotHoldUpTheStream(t *testing.T) {
	t.Parallel()
	var s slowOwners
	began := time.Now()
	s.note(1, began, began.Add(ownersTimeout/10))
	s.note(2, began, began.Add(ownersTimeout))
	for after, want := range map[int64]bool{2: true, 19: true, 21: false} {
		at := began.Add(ownersTimeout + time.Duration(after*int64(ownersTimeout)))
		if s.now(1, at) || s.now(2, at) != want {
			t.Errorf("after %s: %t, and of the slow one %t, want %t", at.Sub(began), s.now(1, at), s.now(2, at), want)
		}
	}
}

// TestP1_TwoChangesOfAJoinedRowAreBothVisible: rows are found once the last of several changes of a joined row is
// visible, not the first. Until then a scan finds them.
func TestP1_TwoChangesOfAJoinedRowAreBothVisible(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	p := pipeline.Pipeline{ID: 1, Status: pipeline.Active, Key: []pipeline.KeyColumn{{Name: "id"}}}
	p.Joins = pipeline.Joins{{On: []pipeline.On{{Column: "doc_id", Of: "id", Exact: true}}}}
	s := &Sidecar{o: Options{Pool: db.Pool}}
	s.loaded.Store(&[]pipeline.Pipeline{p})
	tx, xid := db.Open()
	changes := []queue.Change{{PipelineID: 1, RowKey: "7", Join: 1, XID: 3}, {PipelineID: 1, RowKey: "7", Join: 1}}
	changes[1].XID = xid
	for _, visible := range []bool{false, true} {
		found, scans, err := s.owners(t.Context(), changes)
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) > 0) != visible || (len(scans[1]) > 0) == visible {
			t.Errorf("visible %t: found %v, for a scan %v", visible, found, scans)
		}
		if err := tx.Commit(t.Context()); !visible && err != nil {
			t.Fatal(err)
		}
	}
}

// TestP9_AJoinedRowThatIsChangedAllTheTime: each change of a joined row stood for each of its source rows, of which
// there may be hundreds: a million changes in memory for one batch.
func TestP9_AJoinedRowThatIsChangedAllTheTime(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	p := pipeline.Pipeline{ID: 1, Status: pipeline.Active, Key: []pipeline.KeyColumn{{Name: "id"}}}
	p.Joins = pipeline.Joins{{On: []pipeline.On{{Column: "doc_id", Of: "id", Exact: true}}}}
	s := &Sidecar{o: Options{Pool: db.Pool}}
	s.loaded.Store(&[]pipeline.Pipeline{p})
	changes := []queue.Change{{PipelineID: 1, RowKey: "8", XID: 3, LSN: 4}}
	for i := range 2000 {
		changes = append(changes, queue.Change{PipelineID: 1, RowKey: "7", Join: 1, XID: 3, LSN: pglogrepl.LSN(i + 5)})
	}
	found, scans, err := s.owners(t.Context(), changes)
	if err != nil || len(scans) > 0 || len(found) != 2 {
		t.Fatalf("%d changes, scans %v, error %v, want 2 changes", len(found), scans, err)
	}
	if c := found[1]; c.RowKey != "7" || c.Join != 0 || c.XID != 0 || c.FirstLSN != 5 || c.LSN != 2004 {
		t.Errorf("%+v stands for them", c)
	}
}
