package host

import (
	"testing"
	"time"
)

func TestIdler_SuspectsWhoIsBusyWithNothingToDo(t *testing.T) {
	t.Parallel()
	type look struct {
		under int
		calls uint64
		used  time.Duration // since the previous check
		wait  time.Duration
	}
	const interval = 5 * time.Second
	for name, tt := range map[string]struct {
		looks []look
		want  int // index of the check that detects it; -1: none
	}{
		"quiet": {
			[]look{{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, time.Second, 0}, {0, 0, 2 * time.Second, 0}},
			-1,
		},
		"busy from the start": {[]look{
			{0, 0, 9 * time.Second, 0},
			{0, 0, 5 * time.Second, 0},
			{0, 0, 5 * time.Second, 0},
			{0, 0, 5 * time.Second, 0},
		}, 2},
		"busy with a call": {[]look{
			{1, 1, 5 * time.Second, 0},
			{1, 1, 5 * time.Second, 0},
			{1, 1, 5 * time.Second, 0},
			{1, 1, 5 * time.Second, 0},
		}, -1},
		"busy with short calls": {[]look{
			{0, 1, 5 * time.Second, 0},
			{0, 2, 5 * time.Second, 0},
			{0, 3, 5 * time.Second, 0},
			{0, 4, 5 * time.Second, 0},
		}, -1},
		"for a moment after work": {[]look{
			{0, 1, 0, 0},
			{0, 1, 5 * time.Second, 0},
			{0, 1, 0, 0},
			{0, 1, 5 * time.Second, 0},
			{0, 1, 0, 0},
		}, -1},
		"spins, and gets little": {[]look{
			{0, 0, 0, 0},
			{0, 0, time.Second / 2, 9 * time.Second},
			{0, 0, time.Second / 2, 9 * time.Second},
		}, 2},
		"wakes, and waits long": {[]look{
			{0, 0, 0, 0},
			{0, 0, time.Second / 20, 9 * time.Second},
			{0, 0, time.Second / 20, 9 * time.Second},
		}, -1},
		"long calls in a row": {[]look{
			{1, 1, 5 * time.Second, 0},
			{0, 1, 4 * time.Second, 0},
			{1, 2, 5 * time.Second, 0},
			{0, 2, 4 * time.Second, 0},
			{1, 3, 0, 0},
		}, -1},
		"between calls": {[]look{
			{0, 1, 0, 0},
			{0, 1, 5 * time.Second, 0},
			{0, 2, 5 * time.Second, 0},
			{0, 2, 3 * time.Second, 0},
		}, 3},
	} {
		var d idler
		now, times, got := time.Unix(1000, 0), cpuTimes{}, -1
		for i, l := range tt.looks {
			now, times.used, times.wait = now.Add(interval), times.used+l.used, times.wait+l.wait
			if d.look(now, l.under, l.calls, times) && got < 0 {
				got = i
			}
		}
		if got != tt.want {
			t.Errorf("%s: found out at look %d, want %d", name, got, tt.want)
		}
	}
}
