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

// How old what several ask for at once may be. Where the tables take longer to read than patience, what was read before
// is shown until it is lastAge old, unless something was just changed here. If the last reading took longer than
// patience, nobody waits.
const (
	statusAge = time.Second
	patience  = 100 * time.Millisecond
	lastAge   = 10 * time.Second
	readLimit = time.Minute
)

// look is a reading of the tables that all who ask share.
type look struct {
	redact  func(string) string
	memory  observe.Memory
	reading singleflight.Group // those that ask meanwhile take what is found

	mu      sync.Mutex
	last    looked
	began   time.Time // when the tables are read: since when; else zero
	changed time.Time // time of the last change that was made through the service
}

// looked is how the tables stood at a time.
type looked struct {
	observe.Database

	at   time.Time
	took time.Duration // to read them
}

// at returns a reading of the tables: a new one, or the last one if a new one takes long.
func (l *look) at(ctx context.Context, pool *pgxpool.Pool) (looked, error) {
	l.mu.Lock()
	last, wait := l.last, patience
	if last.took > patience {
		wait = 0
	} else if !l.began.IsZero() { // who asks several times while it is read waits once
		wait -= time.Since(l.began)
	}
	l.mu.Unlock()
	age := time.Since(last.at)
	if age < statusAge {
		return last, nil
	}
	answer := l.reading.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit) // others wait for it, too
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

// read asks the tables.
func (l *look) read(ctx context.Context, pool *pgxpool.Pool) (now looked, err error) {
	defer func() {
		if panicked := recover(); panicked != nil { // nobody else stands between it and the end of the program
			err = fmt.Errorf("read how things stand: %v", panicked)
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

// mark notes since when the tables are read.
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

// lastAt is the time of the last reading.
func (l *look) lastAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.at
}
