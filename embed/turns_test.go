package embed

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// slow is an Embedder that answers when the test releases it.
type slow struct {
	script
	next  chan struct{}
	order chan string // the first text of each started call
}

func (s *slow) Embed(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	s.order <- texts[0]
	<-s.next
	return s.script.Embed(ctx, kind, texts)
}

// A share waits only for the calls under way, however many texts another has. With a backlog each, shares get calls by
// weight.
func TestShares_TakeTurnsByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &slow{next: make(chan struct{}), order: make(chan string, 1000)}
		s := NewService(e, 1<<20).ShareOut(1)
		var all sync.WaitGroup
		embeds := func(share Share, batch int) {
			all.Go(func() {
				texts := make([]string, portion)
				for i := range texts {
					texts[i] = fmt.Sprintf("%s %d %d", share.Name, batch, i)
				}
				if _, err := s.Embed(WithShare(t.Context(), share), Document, texts, false); err != nil {
					t.Error(err)
				}
			})
		}
		const batches = 40
		for i := range batches {
			embeds(Share{"large", Terms{Weight: 1}}, i)
		}
		synctest.Wait()
		embeds(Share{"small", Terms{Weight: 1}}, 0)
		for i := range batches {
			embeds(Share{"heavy", Terms{Weight: 3}}, i)
		}
		synctest.Wait()
		calls := map[string]int{}
		smallAt := -1
		for at := range 21 {
			var name string
			if _, err := fmt.Sscanf(<-e.order, "%s", &name); err != nil {
				t.Fatal(err)
			}
			if name == "small" {
				smallAt = at
			}
			calls[name]++
			e.next <- struct{}{}
			synctest.Wait()
		}
		if smallAt < 1 || smallAt > 3 {
			t.Errorf("the call of the small share was number %d", smallAt)
		}
		if heavy, large := calls["heavy"], calls["large"]; heavy < 2*large || heavy > 4*large {
			t.Errorf("%d calls of weight 3 and %d of weight 1", heavy, large)
		}
		close(e.next)
		all.Wait()
	})
}

// A caller that gives up stops waiting and takes no turn of others.
func TestShares_WhoGivesUpTakesNoTurn(t *testing.T) {
	t.Parallel()
	q := newTurns(1)
	leave, err := q.take(t.Context(), Share{Name: "a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.take(gone, Share{Name: "b"}, portion); err == nil {
		t.Error("it had a turn")
	}
	leave()
	leave, err = q.take(t.Context(), Share{Name: "c"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if q.free != 1 || len(q.queue) != 0 || len(q.running) != 0 {
		t.Errorf("%d free, %d wait, %d run", q.free, len(q.queue), len(q.running))
	}
}

// A single change of a share without a call under way begins immediately, even if others' large calls run. Further ones
// wait, of the same share and of others.
func TestShares_ALoneChangeWaitsForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(2)
		begun := map[string]int{}
		var leave []func()
		takes := func(share string, texts int) {
			go func() {
				l, err := q.take(t.Context(), Share{Name: share}, texts)
				if err != nil {
					t.Error(err)
				}
				begun[share]++
				leave = append(leave, l)
			}()
			synctest.Wait()
		}
		for range 5 {
			takes("large", 8*portion)
		}
		takes("lone", 1)
		takes("lone", 1)
		takes("other", 1)
		if begun["large"] != 2 || begun["lone"] != 1 || begun["other"] != 0 {
			t.Fatalf("begun: %v", begun)
		}
		leave[2]() // that of the single change
		synctest.Wait()
		if begun["large"] != 2 || begun["lone"] != 1 || begun["other"] != 1 { // it has used less
			t.Errorf("begun then: %v", begun)
		}
		for n := range 8 {
			if n != 2 {
				leave[n]()
				synctest.Wait()
			}
		}
		if q.free != 2 || len(q.running) != 0 {
			t.Errorf("%d free, %v run", q.free, q.running)
		}
	})
}
