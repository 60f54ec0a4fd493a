// Package limit keeps work below a number of rows and of tokens a second: bulk work, and all of it together. Live work
// is not held back by what bulk work has taken.
//
// What is taken may be given back, and may turn out to be more than was asked for: a text's tokens are known when it is
// embedded. The buckets of golang.org/x/time/rate know neither.
package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Rates are the most of a second; 0: no limit.
type Rates struct{ Rows, Tokens float64 }

// Limit is what the workers of a process share. It is safe for concurrent use; nil allows everything.
type Limit struct {
	mu                       sync.Mutex
	buckets                  [4]bucket
	rowsCounted, tokensCount float64 // recently: they tell how many tokens a row is likely to take
}

// The buckets, in the order in which they are said to hold work back.
const (
	bulkRows = iota
	bulkTokens
	allRows
	allTokens
)

// names are what configurations call them.
var names = [...]string{
	"backfill_rows_per_second", "backfill_tokens_per_second", "rows_per_second", "tokens_per_second",
}

// New returns a Limit, or nil if there is none to be kept.
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

// bucket fills with rate, up to what a second gives. It may be in debt.
type bucket struct {
	rate, left float64
	at         time.Time
}

// burst is how much may be taken at once: what a second gives, and one at least.
func burst(rate float64) float64 { return max(rate, 1) }

func (b *bucket) fill(now time.Time) {
	if now.After(b.at) {
		b.left = min(b.left+b.rate*now.Sub(b.at).Seconds(), burst(b.rate))
		b.at = now
	}
}

// Grant is what was taken of a Limit.
type Grant struct {
	Rows  int           // that may be taken into work; 0: none now
	Wait  time.Duration // how long it is until there are some
	Bound string        // the setting that there are no more for; "": there are as many as were asked for

	l      *Limit
	bulk   bool
	tokens float64 // that they are likely to take
}

// Grant takes rows whatever there is.
func (l *Limit) Grant(rows int) Grant {
	g := Grant{Rows: rows, l: l}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spend(false, float64(rows), 0)
	}
	return g
}

// Take takes up to so many rows. Bulk work leaves half of what there is for all work to live work.
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

// Leased says how many of the rows were taken into work, and whether they are bulk work; the others are given back.
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

// Done gives back the tokens that the rows were likely to take: Spend has counted those that they took.
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

// Spend counts rows that were not asked for, and tokens.
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

// Allows reports whether live work of so many rows would be allowed now.
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

// tokensOfRow is what a row has taken recently. Nothing is known before the first rows: they are taken for long ones.
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

// InWork bounds how many rows of all workers of a process are in work at once. Who waits is let in by rank and, of the
// same rank, in the order in which they came. Of two places or more, those of rank 0 or below, bulk work, leave one to
// the others. It is safe for concurrent use; nil bounds nothing.
type InWork struct {
	mu      sync.Mutex
	most    int // 0: no limit
	rows    int // in work
	waiting []*waiter
}

// rankPause is how often who waits looks at his rank.
const rankPause = 100 * time.Millisecond

// waiter is one who waits for places.
type waiter struct {
	rank func() int
	rows int
	let  chan places
}

// places are what a waiter is given. The last one of two or more is for live work.
type places struct {
	rows int
	last bool
}

// NewInWork returns one with a limit; 0: none, for now.
func NewInWork(most int) *InWork { return &InWork{most: most} }

// Set changes the limit. Rows that are in work stay there, and count.
func (w *InWork) Set(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = most
	w.letInLocked()
}

// Sequential reports whether one row is in work at a time.
func (w *InWork) Sequential() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most == 1
}

// Enter takes places for one row up to so many, as soon as there is one and nobody of a higher rank waits for it. It
// fails when ctx ends first. rank is asked each time that there is one: it calls nothing of w. last: only live work may
// be done there.
func (w *InWork) Enter(ctx context.Context, rank func() int, rows int) (taken int, last bool, err error) {
	if w == nil {
		return rows, false, nil
	}
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
	case p := <-one.let: // at the same moment
		w.rows -= p.rows
	default:
		w.waiting = slices.DeleteFunc(w.waiting, func(other *waiter) bool { return other == one })
	}
	w.letInLocked()
	return 0, false, ctx.Err()
}

// TryEnter takes places for all of so many rows, or none. Of those who wait, bulk work alone is passed by.
func (w *InWork) TryEnter(rows int) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.freeLocked(rows) {
		return false
	}
	w.rows += rows
	return true
}

// Free reports whether TryEnter would take places now.
func (w *InWork) Free(rows int) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.freeLocked(rows)
}

func (w *InWork) freeLocked(rows int) bool {
	return w.most == 0 || w.rows+rows <= w.most
}

// Add takes places whether there are any or not: work that was given up goes on.
func (w *InWork) Add(rows int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows += rows
}

// Leave gives places back.
func (w *InWork) Leave(rows int) {
	if w == nil || rows == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows -= rows
	w.letInLocked()
}

// letInLocked gives places to those who wait, while there are any.
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
