package embed

import (
	"sync/atomic"
	"time"
)

// Usual is the smoothed duration of recent batches, as measured by their callers. It is safe for concurrent use.
type Usual struct {
	batch atomic.Int64 // nanoseconds, without the time of its texts
	text  atomic.Int64 // nanoseconds of embedding per text
}

// Note averages the last batch into it, with weight one half.
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
