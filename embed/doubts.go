package embed

import "sync"

// doubts counts, for texts without an answer, the calls that failed with them though the error blamed no text. The zero
// doubts has none.
type doubts struct {
	mu      sync.Mutex
	answers int // calls that were answered so far
	texts   map[Key]doubt
}

// doubt is what is known of a text without an answer.
type doubt struct {
	calls int // that failed
	since int // answers before the first of them
}

const (
	doubtful   = 3    // calls after which a text is doubted
	mostDoubts = 8192 // texts; with more, as while an embedder is down for long, all counts are dropped
	mostInARow = 3    // texts that may be at fault one after the other; with more, the embedder is down
)

func (d *doubts) failed(text Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.texts == nil || len(d.texts) > mostDoubts {
		d.texts = map[Key]doubt{}
	}
	t, there := d.texts[text]
	if !there {
		t.since = d.answers
	}
	t.calls++
	d.texts[text] = t
}

func (d *doubts) answered(text Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.texts, text)
}

// called counts a call that was answered.
func (d *doubts) called() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers++
}

// alone reports whether calls without the text were answered since it failed first.
func (d *doubts) alone(text Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, there := d.texts[text]
	return there && d.answers > t.since
}
