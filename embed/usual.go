package embed

import (
	"sync/atomic"
	"time"
)

// Usual is how long recent batches took, as their callers measured it. It is safe for concurrent use.
type Usual struct {
	batch atomic.Int64 // nanoseconds, without what its rows take
	text  atomic.Int64 // nanoseconds, of what it waited for the embedder: the share of each text
}

// Note has half of it be the last batch.
func (u *Usual) Note(batch, text time.Duration) {
	if before, share := u.Get(); before != 0 {
		batch, text = (before+batch)/2, (share+text)/2
	}
	u.batch.Store(int64(batch))
	u.text.Store(int64(text))
}

// Get returns how long a batch takes, and the embedder for each text of it; 0: there was none.
func (u *Usual) Get() (batch, text time.Duration) {
	return time.Duration(u.batch.Load()), time.Duration(u.text.Load())
}
