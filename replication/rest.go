package replication

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pace"
)

// longestRest is how long what follows a batch that is not full waits for company at most, with the usual share of a
// core. What a batch costs beside, by the stream and the embedder, is as much again.
const longestRest = 25 * time.Millisecond

// While others keep the host busy all batches together take a smaller share, and what follows one waits until it is
// used up: not for longer than Options.GiveWay, not while somebody waits for a position, and not once so much WAL is
// kept for it. A change that comes alone is worked at once still.
const (
	busyShare  = 0.02
	longestWAL = 256 << 20
	busyLook   = 20 * time.Millisecond
)

// rest waits before the next batch, after one of n changes that took so long. It returns false when ctx has ended.
func (ses *session) rest(ctx context.Context, n int, took time.Duration) bool {
	now := time.Now()
	if n < maxBatch {
		ses.pace.Spend(took, now)
		if !ses.pause(ctx, ses.pace.Rest(now, pace.Longest(longestRest, ses.s.o.CPUShare))) {
			return false
		}
	}
	return ses.s.o.GiveWay == 0 || ses.giveWay(ctx, took)
}

// pause waits, and lets the reader know for how long.
func (ses *session) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	ses.restsUntil.Store(time.Now().Add(d).UnixNano())
	return wait(ctx, d)
}

// giveWay puts work off while others keep the host busy.
func (ses *session) giveWay(ctx context.Context, took time.Duration) bool {
	if !ses.s.o.Busy() {
		ses.yield = pace.Pace{}
		ses.giveWayEnded(ctx)
		return true
	}
	ses.yield.Share = busyShare
	ses.yield.Spend(took, time.Now())
	defer ses.buffer.release()
	longest, before := ses.s.o.GiveWay, time.Now()
	for ses.yield.Rest(before, longest) > 0 && ses.s.o.Busy() && ses.kept() < longestWAL {
		may, some := ses.buffer.hold(longest)
		if !may {
			break
		}
		if !ses.pause(ctx, busyLook) {
			return false
		}
		now := time.Now()
		if some {
			ses.s.stats.gaveWay(before, now)
			ses.sayThatItGivesWay(ctx)
		}
		before = now
	}
	return true
}

// gaveWay counts a time for which work was put off.
func (s *Stats) gaveWay(from, to time.Time) {
	if _, is := s.GivesWay(from); !is {
		s.givesWaySince.Store(from.UnixNano())
	}
	s.gaveWayAt.Store(to.UnixNano())
	s.GaveWay.Add(int64(to.Sub(from)))
}

// GivesWay reports whether work is put off for others who keep the host busy, and since when.
func (s *Stats) GivesWay(now time.Time) (since time.Time, is bool) {
	const longestBatch = 2 * time.Second // between two rests
	is = now.Sub(time.Unix(0, s.gaveWayAt.Load())) < longestBatch
	return time.Unix(0, s.givesWaySince.Load()), is
}

func (ses *session) sayThatItGivesWay(ctx context.Context) {
	const after = time.Second
	if since, is := ses.s.stats.GivesWay(time.Now()); is && !ses.gaveWay && time.Since(since) > after {
		ses.gaveWay = true
		ses.s.o.Log.InfoContext(ctx, "gives way: others keep all cores of this host busy", "slot", ses.s.o.Slot,
			"longest", ses.s.o.GiveWay.String())
	}
}

func (ses *session) giveWayEnded(ctx context.Context) {
	if ses.gaveWay {
		ses.gaveWay = false
		ses.s.o.Log.InfoContext(ctx, "gives way no more", "slot", ses.s.o.Slot)
	}
}

// kept is how much of the WAL that has come is not durable.
func (ses *session) kept() pglogrepl.LSN {
	stats := &ses.s.stats
	return pglogrepl.LSN(stats.ReceivedLSN.Load() - min(stats.ReceivedLSN.Load(), stats.DurableLSN.Load()))
}
