package replication

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/base/pace"
)

// longestRest is how long what follows a batch that is not full waits for company at most, with the usual share of a
// core. What a batch costs beside, by the stream and the embedder, is as much again.
const longestRest = 25 * time.Millisecond

// While others keep the host busy all batches together take a smaller share, and what follows waits until they have had
// it: not for longer than Options.GiveWay, not while somebody waits for a position, and not once so much WAL is kept.
// A change that comes alone is worked at once still.
const (
	busyShare  = 0.02
	longestWAL = 256 << 20
	busyLook   = 20 * time.Millisecond
)

// rest waits before the next batch, after one of n changes that took so long. It returns false when ctx has ended.
func (ses *session) rest(ctx context.Context, n int, took time.Duration) bool {
	now := time.Now()
	ses.yield.Spend(took, now)
	if n >= maxBatch {
		return true
	}
	ses.pace.Spend(took, now)
	return ses.pause(ctx, ses.pace.Rest(now, pace.Longest(longestRest, ses.s.o.CPUShare)))
}

// pause waits, and lets the reader know for how long.
func (ses *session) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	ses.restsUntil.Store(time.Now().Add(d).UnixNano())
	return wait(ctx, d)
}

// giveWay puts off what waits in the buffer while others keep the host busy. It returns false when ctx has ended.
func (ses *session) giveWay(ctx context.Context) bool {
	o, stats := &ses.s.o, &ses.s.stats
	if o.GiveWay == 0 {
		return true
	}
	if !o.Busy() {
		ses.yield = pace.Pace{Share: busyShare, Most: o.GiveWay}
		return true
	}
	defer ses.buffer.release()
	for before := time.Now(); ses.yield.Rest(before, o.GiveWay) > 0 && o.Busy() && ses.kept() < longestWAL &&
		ses.buffer.hold(o.GiveWay, pglogrepl.LSN(stats.ServerLSN.Load())); {
		if !ses.pause(ctx, busyLook) {
			return false
		}
		now := time.Now()
		stats.gaveWay(before, now)
		before = now
		ses.sayThatItGivesWay(ctx, now)
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
	const longest = 15 * time.Second // between two rests: what has waited is worked then
	is = now.Sub(time.Unix(0, s.gaveWayAt.Load())) < longest
	return time.Unix(0, s.givesWaySince.Load()), is
}

// sayThatItGivesWay logs it once each time, when it is worth a line.
func (ses *session) sayThatItGivesWay(ctx context.Context, now time.Time) {
	const worth = time.Second
	if since, _ := ses.s.stats.GivesWay(now); !since.Equal(ses.saidOf) && now.Sub(since) > worth {
		ses.saidOf = since
		ses.s.o.Log.InfoContext(ctx, "gives way: others keep all cores of this host busy", "slot", ses.s.o.Slot,
			"longest", ses.s.o.GiveWay.String())
	}
}

// kept is how much of the WAL that has come is not durable.
func (ses *session) kept() pglogrepl.LSN {
	stats := &ses.s.stats
	return pglogrepl.LSN(stats.ReceivedLSN.Load() - min(stats.ReceivedLSN.Load(), stats.DurableLSN.Load()))
}
