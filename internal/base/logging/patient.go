package logging

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// patient writes lines to a reader that may block, such as a full pipe, without blocking the callers. After a line that
// is not read in time, it drops lines until that line is read, and then reports their number.
type patient struct {
	to    io.Writer
	limit time.Duration // maximum wait for a line
	lost  func(lines int) []byte

	mu      sync.Mutex
	late    chan struct{} // closed when the late line is written; nil: there is none
	dropped int
}

// Write returns no error: a late line may still be written.
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
	select {
	case <-written:
	case <-time.After(p.limit):
		p.late = written
	}
	return len(line), nil
}
