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
	mostDoubts = 8192 // texts; with more, as while an embedder is down for long, all counts are dropped
)

func (d *doubts) failed(text Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil || len(d.calls) > mostDoubts {
		d.calls = map[Key]int{}
	}
	d.calls[text]++
}

func (d *doubts) answered(text Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, text)
}

func (d *doubts) about(text Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[text] >= doubtful
}
