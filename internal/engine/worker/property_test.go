package worker

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Whatever the settings: a row that fails by its own fault is tried max_attempts times and no more, each pause is
// between half of what it may be and all of it, that doubles from try to try up to the longest, and what is not its
// fault counts no attempt.
func TestProperty_RetriesAreBoundedAndPausesGrow(t *testing.T) {
	t.Parallel()
	p := forms()["table"]
	rapid.Check(t, func(rt *rapid.T) {
		r := Retry{
			MaxAttempts: rapid.IntRange(1, 20).Draw(rt, "attempts"),
			Initial:     time.Duration(rapid.IntRange(1, 5000).Draw(rt, "initial")) * time.Millisecond,
			Max:         time.Duration(rapid.IntRange(1, 600).Draw(rt, "max")) * time.Second,
		}
		w, _, _ := inMemory(t, p, func(o *Options) { o.Retry = r })
		task := queue.Task{RowKey: "a"}
		most := min(r.Initial, r.Max)
		for try := 1; ; try++ {
			it := item{task: task, action: broken, err: &embed.TextError{Class: embed.Transient, Code: "busy"}}
			if o := w.failure(&it); o.Action != queue.Later || o.Attempt != task.Attempt {
				rt.Fatalf("what is not its fault: %+v", o)
			}
			it.err = &embed.TextError{Class: embed.Data, Code: "bad"}
			o := w.failure(&it)
			if int(o.Attempt) != try || o.Action == queue.Fail != (try == r.MaxAttempts) {
				rt.Fatalf("try %d of %d: %+v", try, r.MaxAttempts, o)
			}
			if o.Action == queue.Fail {
				return
			}
			if o.Delay < most/2 || o.Delay > most {
				rt.Fatalf("try %d of %+v: a pause of %s, want %s to %s", try, r, o.Delay, most/2, most)
			}
			task.Attempt, most = o.Attempt, min(2*most, r.Max)
		}
	})
}
