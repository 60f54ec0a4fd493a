// Package logs collects log output for tests.
package logs

import (
	"bytes"
	"sync"
)

// Buffer collects a log. It may be read while it is written.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (o *Buffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the log so far.
func (o *Buffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
