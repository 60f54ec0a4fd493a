package logging

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// patient writes lines to a reader who may stop reading, such as of a pipe that is full: that stops nobody who logs.
// Lines are dropped until the one is read that was not in time, and then it says how many.
type patient struct {
	to    io.Writer
	limit time.Duration // for which a line is waited for
	lost  func(lines int) []byte

	mu      sync.Mutex
	late    chan struct{} // closed when the line is written that was not in time; nil: there is none
	dropped int
}

// Write returns no error: a line that is not written in time may be later.
func (p *patient) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late != nil {
		select {
		case <-p.late:
			p.late = nil
		default:
			p.dropped++
			return len(line), nil
		}
	}
	text := bytes.Clone(line)
	if p.dropped > 0 {
		text, p.dropped = append(p.lost(p.dropped), text...), 0
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = p.to.Write(text)
	}()
	limit := time.NewTimer(p.limit)
	defer limit.Stop()
	select {
	case <-written:
	case <-limit.C:
		p.late = written
	}
	return len(line), nil
}
