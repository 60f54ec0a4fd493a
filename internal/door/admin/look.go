package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// Limits of the cached state, which concurrent callers share. If reading the tables takes longer than patience, callers
// get the last state until it is lastAge old, unless the service has changed something since. If the last read took
// longer than patience, they do not wait at all.
const (
	statusAge = time.Second
	patience  = 100 * time.Millisecond
	lastAge   = 10 * time.Second
	readLimit = time.Minute
)

// look is the cached state of the tables.
type look struct {
	redact  func(string) string
	memory  observe.Memory
	reading singleflight.Group // concurrent callers share its result

	mu      sync.Mutex
	last    looked
	began   time.Time // start of the read in progress; else zero
	changed time.Time // time of the last change through the service
}

// looked is the state of the tables at a time.
type looked struct {
	observe.Database

	at   time.Time
	took time.Duration // duration of the read
}

// at returns the state of the tables: a new one, or the last one if reading takes long.
func (l *look) at(ctx context.Context, pool *pgxpool.Pool) (looked, error) {
	l.mu.Lock()
	last, wait := l.last, patience
	if last.took > patience {
		wait = 0
	} else if !l.began.IsZero() { // repeated calls during one read wait once in total
		wait -= time.Since(l.began)
	}
	l.mu.Unlock()
	age := time.Since(last.at)
	if age < statusAge {
		return last, nil
	}
	answer := l.reading.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit) // others share the result
		defer cancel()
		return l.read(ctx, pool)
	})
	var late <-chan time.Time
	if age < lastAge {
		late = time.After(wait)
	}
	select {
	case got := <-answer:
		now, _ := got.Val.(looked)
		return now, got.Err
	case <-late:
		return last, nil
	case <-ctx.Done():
		return looked{}, context.Cause(ctx)
	}
}

func (l *look) read(ctx context.Context, pool *pgxpool.Pool) (now looked, err error) {
	defer func() {
		if panicked := recover(); panicked != nil { // it runs in its own goroutine, so a panic would end the program
			err = fmt.Errorf("read the state: %v", panicked)
		}
	}()
	now.at = time.Now()
	l.mark(now.at)
	defer l.mark(time.Time{})
	if now.Database, err = observe.Read(ctx, pool, &l.memory, l.redact); err == nil {
		now.took = time.Since(now.at)
		l.mu.Lock()
		defer l.mu.Unlock()
		if now.at.After(l.changed) {
			l.last = now
		}
	}
	return now, err
}

// mark records the start of a read, or its end with a zero time.
func (l *look) mark(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = began
}

// forget makes the next caller read the tables again, after a change.
func (l *look) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.changed = looked{}, time.Now()
	l.reading.Forget("")
}

func (l *look) lastAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.at
}
