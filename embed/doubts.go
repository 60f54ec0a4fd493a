package embed

import "sync"

// doubts counts, for texts without an answer, the calls that failed with them though the error blamed no text. The zero
// doubts has none.
type doubts struct {
	mu    sync.Mutex
	calls map[Key]int
}

const (
	doubtful   = 3    // calls after which a text is doubted
	mostDoubts = 8192 // texts; while an embedder is down for long, counting begins anew
)

// blamesNone reports whether the failure of a call may be the fault of one of its texts, though it says nothing about
// it: a server that is overloaded asks for a delay, but one that dies of a text, or takes too long for it, does not.
func (e *Error) blamesNone() bool {
	return e != nil && e.Class == Transient && e.RetryAfter == 0 && e.Code != canceled
}

func (d *doubts) failed(texts ...*flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil || len(d.calls) > mostDoubts {
		d.calls = map[Key]int{}
	}
	for _, f := range texts {
		d.calls[f.key]++
	}
}

func (d *doubts) answered(f *flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, f.key)
}

// split returns the texts that are not doubted, and those that are.
func (d *doubts) split(batch []*flight) (clean, doubted []*flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) == 0 {
		return batch, nil
	}
	for _, f := range batch {
		if d.calls[f.key] < doubtful {
			clean = append(clean, f)
		} else {
			doubted = append(doubted, f)
		}
	}
	return clean, doubted
}
