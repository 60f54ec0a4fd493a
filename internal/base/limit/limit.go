// Package limit limits the number of rows and tokens per second: of bulk work, and of all work. The share that bulk
// work uses does not delay live work.
//
// Taken units can be returned, and may turn out to be too few: a text's tokens are known only when it is embedded. The
// buckets of golang.org/x/time/rate support neither.
package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Rates are limits per second; 0: no limit.
type Rates struct{ Rows, Tokens float64 }

// Limit is shared by the workers of a process. It is safe for concurrent use; a nil Limit allows everything.
type Limit struct {
	mu                       sync.Mutex
	buckets                  [4]bucket
	rowsCounted, tokensCount float64 // recent counts, to estimate the tokens of a row
}

// The buckets, in the order in which they are reported as the limit.
const (
	bulkRows = iota
	bulkTokens
	allRows
	allTokens
)

// names are their settings.
var names = [...]string{
	"backfill_rows_per_second", "backfill_tokens_per_second", "rows_per_second", "tokens_per_second",
}

// New returns a Limit, or nil if there are no rates.
func New(all, bulk Rates, now time.Time) *Limit {
	if all == (Rates{}) && bulk == (Rates{}) {
		return nil
	}
	l := &Limit{}
	for i, rate := range [...]float64{bulk.Rows, bulk.Tokens, all.Rows, all.Tokens} {
		l.buckets[i] = bucket{rate: rate, left: burst(rate), at: now}
	}
	return l
}

// bucket fills at rate, up to one second's worth. It may be negative.
type bucket struct {
	rate, left float64
	at         time.Time
}

// burst is the maximum to take at once: one second's worth, but at least one.
func burst(rate float64) float64 { return max(rate, 1) }

func (b *bucket) fill(now time.Time) {
	if now.After(b.at) {
		b.left = min(b.left+b.rate*now.Sub(b.at).Seconds(), burst(b.rate))
		b.at = now
	}
}

// Grant is what was taken from a Limit.
type Grant struct {
	Rows  int           // rows that may be leased; 0: none now
	Wait  time.Duration // time until there are some
	Bound string        // the setting that limits the rows; "": none does

	l      *Limit
	bulk   bool
	tokens float64 // the estimated tokens of the rows
}

// Grant takes rows regardless of the limit.
func (l *Limit) Grant(rows int) Grant {
	g := Grant{Rows: rows, l: l}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spend(false, float64(rows), 0)
	}
	return g
}

// Take takes up to most rows. Bulk work leaves half of the common limit to live work.
func (l *Limit) Take(now time.Time, bulk bool, most int) Grant {
	g := Grant{Rows: most, l: l, bulk: bulk}
	if l == nil {
		return g
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	perRow := l.tokensOfRow()
	for i := range l.buckets {
		b := &l.buckets[i]
		if b.rate == 0 || !bulk && i < allRows {
			continue
		}
		b.fill(now)
		there := b.left
		if bulk && i >= allRows {
			there -= min(burst(b.rate)/2, burst(b.rate)-1)
		}
		rows, lacks := there, 1-there
		if i == bulkTokens || i == allTokens {
			rows, lacks = max(there/perRow, min(there, 1)), 1-there
		}
		if n := int(max(rows, 0)); n < g.Rows {
			g.Rows, g.Bound = n, names[i]
		}
		if lacks > 0 {
			g.Wait = max(g.Wait, time.Duration(lacks/b.rate*float64(time.Second))+time.Millisecond)
		}
	}
	g.tokens = perRow * float64(g.Rows)
	l.spend(bulk, float64(g.Rows), g.tokens)
	return g
}

// Leased reports how many of the rows were leased, and whether they are bulk work; it returns the others.
func (g *Grant) Leased(rows int, bulk bool) {
	if g.l == nil {
		return
	}
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.l.spend(g.bulk, -float64(g.Rows), -g.tokens)
	g.tokens *= float64(rows) / float64(max(g.Rows, 1))
	g.Rows, g.bulk = rows, bulk
	g.l.spend(bulk, float64(rows), g.tokens)
}

// Done returns the estimated tokens of the rows: Spend has counted the actual ones.
func (g *Grant) Done() {
	if g.l == nil {
		return
	}
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.l.spend(g.bulk, 0, -g.tokens)
	g.l.rowsCounted += float64(g.Rows)
	g.tokens, g.Rows = 0, 0
}

// Spend counts rows that were not taken, and tokens.
func (l *Limit) Spend(now time.Time, bulk bool, rows, tokens int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.buckets {
		l.buckets[i].fill(now)
	}
	l.spend(bulk, float64(rows), float64(tokens))
	l.rowsCounted += float64(rows)
	l.tokensCount += float64(tokens)
}

// Allows reports whether live work with so many rows would be allowed now.
func (l *Limit) Allows(now time.Time, rows int) bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, want := range map[int]float64{allRows: float64(rows), allTokens: l.tokensOfRow() * float64(rows)} {
		b := &l.buckets[i]
		if b.fill(now); b.rate > 0 && b.left < min(want, burst(b.rate)) {
			return false
		}
	}
	return true
}

func (l *Limit) spend(bulk bool, rows, tokens float64) {
	for i, n := range [...]float64{rows, tokens, rows, tokens} {
		if b := &l.buckets[i]; b.rate > 0 && (bulk || i >= allRows) {
			b.left -= n
		}
	}
}

// tokensOfRow estimates the tokens of a row from recent rows. Before the first ones, it assumes long ones.
func (l *Limit) tokensOfRow() float64 {
	const usual, lately = 256, 1000
	if l.rowsCounted > lately {
		l.rowsCounted, l.tokensCount = l.rowsCounted/2, l.tokensCount/2
	}
	if l.rowsCounted == 0 {
		return usual
	}
	return max(l.tokensCount/l.rowsCounted, 1)
}

// InWork limits how many rows all workers of a process have in progress. Waiters enter in the order of their ranks, and
// within a rank in the order of arrival. If there are at least two places, bulk work, of rank 0 or below, leaves one to
// live work. It is safe for concurrent use.
type InWork struct {
	mu      sync.Mutex
	most    int // 0: no limit
	rows    int // in progress
	waiting []*waiter
}

// rankPause is how often waiters check their rank.
const rankPause = 100 * time.Millisecond

// waiter waits for places.
type waiter struct {
	rank func() int
	rows int
	let  chan places
}

// places are granted to a waiter. The last one of two or more is for live work.
type places struct {
	rows int
	last bool
}

// NewInWork returns an InWork with a limit; 0: none.
func NewInWork(most int) *InWork { return &InWork{most: most} }

// Set changes the limit. Rows in progress continue, and count.
func (w *InWork) Set(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = most
	w.letInLocked()
}

// Sequential reports whether only one row may be in progress.
func (w *InWork) Sequential() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most == 1
}

// Enter takes places for up to so many rows, as soon as there is one for which no waiter of a higher rank waits. It
// fails if ctx ends first. It calls rank for each free place; rank must not call methods of w. last means that only
// live work may use the places.
func (w *InWork) Enter(ctx context.Context, rank func() int, rows int) (taken int, last bool, err error) {
	w.mu.Lock()
	if w.most == 0 {
		defer w.mu.Unlock()
		w.rows += rows
		return rows, false, nil
	}
	one := &waiter{rank, rows, make(chan places, 1)}
	w.waiting = append(w.waiting, one)
	w.letInLocked()
	w.mu.Unlock()
	for ctx.Err() == nil {
		select {
		case p := <-one.let:
			return p.rows, p.last, nil
		case <-ctx.Done():
		case <-time.After(rankPause):
			if rank() > 0 { // it may have risen
				w.mu.Lock()
				w.letInLocked()
				w.mu.Unlock()
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case p := <-one.let: // granted at the same time
		w.rows -= p.rows
	default:
		w.waiting = slices.DeleteFunc(w.waiting, func(other *waiter) bool { return other == one })
	}
	w.letInLocked()
	return 0, false, ctx.Err()
}

// TryEnter takes places for all rows, or none. It passes only waiters with bulk work.
func (w *InWork) TryEnter(rows int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.freeLocked(rows) {
		return false
	}
	w.rows += rows
	return true
}

// Free reports whether TryEnter would succeed now.
func (w *InWork) Free(rows int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.freeLocked(rows)
}

func (w *InWork) freeLocked(rows int) bool {
	return w.most == 0 || w.rows+rows <= w.most
}

// Add takes places beyond the limit: abandoned work continues.
func (w *InWork) Add(rows int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows += rows
}

// Leave returns places.
func (w *InWork) Leave(rows int) {
	if rows == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows -= rows
	w.letInLocked()
}

// letInLocked grants places to waiters, while there are any.
func (w *InWork) letInLocked() {
	for len(w.waiting) > 0 && (w.most == 0 || w.rows < w.most) {
		first, rows := 0, w.waiting[0].rows
		if w.most > 0 {
			highest := w.waiting[0].rank()
			for i, other := range w.waiting[1:] {
				if rank := other.rank(); rank > highest {
					first, highest = i+1, rank
				}
			}
			room := w.most - w.rows
			if highest <= 0 && w.most > 1 {
				room--
			}
			if rows = min(w.waiting[first].rows, room); rows == 0 {
				return
			}
		}
		one := w.waiting[first]
		w.waiting = slices.Delete(w.waiting, first, first+1)
		w.rows += rows
		one.let <- places{rows, w.most > 1 && w.rows == w.most}
	}
}
