package output

import (
	"io"
	"time"

	bars "github.com/jedib0t/go-pretty/v6/progress"
)

// Bars lets a bar grow on a terminal for each of several things that are fetched. grow takes how many bytes of one are
// there, and of how many: below 0 where nobody knows. finished ends it.
func Bars(to io.Writer, color bool) (grow func(name string, done, total int64), finished func()) {
	const barWidth, least = 30, 1 << 16 // bytes that are worth a bar
	w := bars.NewWriter()
	w.SetOutputWriter(to)
	w.SetTrackerLength(barWidth)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.Style().Options.Separator = " "
	if !color {
		w.SetStyle(bars.StyleDefault)
	}
	trackers := map[string]*bars.Tracker{}
	grow = func(name string, done, total int64) {
		tracker, ok := trackers[name]
		if !ok && total >= 0 && total < least {
			return
		}
		if !ok {
			tracker = &bars.Tracker{Message: name, Total: max(total, 0), Units: bars.UnitsBytes}
			trackers[name] = tracker
			w.AppendTracker(tracker)
		}
		tracker.SetValue(done)
		if total >= 0 && done >= total {
			tracker.MarkAsDone()
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Render()
	}()
	return grow, func() {
		for _, tracker := range trackers {
			if !tracker.IsDone() {
				tracker.MarkAsErrored()
			}
		}
		for ended := false; !ended; {
			w.Stop() // lost where the bars have not begun yet
			select {
			case <-over:
				ended = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}
