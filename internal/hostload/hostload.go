// Package hostload tells whether others keep all cores of this host busy: then what can wait should.
package hostload

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A single look says little: it counts who runs or would like to at this very moment. So there is one in each interval
// at most, and the mean of the latest counts. What was seen longer ago than the memory says nothing.
const (
	interval = 20 * time.Millisecond
	window   = 500 * time.Millisecond
	memory   = time.Second
	fewest   = 10  // looks that make a mean
	relief   = 0.7 // of the cores: below that the host is no longer busy
)

// A Meter judges the host. It is safe for concurrent use, and does nothing unless it is asked.
type Meter struct {
	// threads of others that run or wait for a core, and those of ours if that was worth a look, else 0
	count func() (others, own int, err error)
	cores int

	mu    sync.Mutex
	at    time.Time // of the latest look
	looks int
	mean  float64
	busy  bool
}

// New returns a Meter of this host. On one that has no /proc nothing is ever busy.
func New() *Meter {
	proc := os.DirFS("/proc")
	cores, err := countCores(proc)
	if err != nil {
		return &Meter{}
	}
	// One thread that runs is no crowd: it may be the server's walsender, which works for us.
	return &Meter{cores: max(cores, 2), count: func() (int, int, error) { return countOthers(proc) }}
}

// Busy reports whether others have kept all cores busy of late. Threads of this process and of those it has started are
// no others, and neither are so many of the server, which work for it. Nothing is learned while an embedder is asked
// and no thread of ours has anything to do: it may be another program, and who keeps the cores busy may work for us.
func (m *Meter) Busy(now time.Time, backends int, asked bool) bool {
	if m.count == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since := now.Sub(m.at)
	if since < interval {
		return m.busy
	}
	others, own, err := m.count()
	if err != nil || since > memory {
		m.looks, m.mean, m.busy = 0, 0, false
	}
	if err != nil || asked && own == 1 { // which is who asks here
		return m.busy
	}
	m.at = now
	m.looks++
	// While there are few looks the mean is that of them all.
	weight := max(1-math.Exp(-since.Seconds()/window.Seconds()), 1/float64(m.looks))
	m.mean += weight * (float64(max(others-backends, 0)) - m.mean)
	most := float64(m.cores)
	if m.busy {
		most *= relief
	}
	m.busy = m.looks >= fewest && m.mean >= most
	return m.busy
}

// errFormat means that a file of /proc does not say what it says on Linux.
var errFormat = errors.New("not in the format of Linux")

// countCores returns the number of cores of the host, which is not that of those this process may use.
func countCores(proc fs.FS) (n int, err error) {
	stat, err := fs.ReadFile(proc, "stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if rest, is := strings.CutPrefix(line, "cpu"); is && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			n++
		}
	}
	if n == 0 {
		return 0, errFormat
	}
	return n, nil
}

// countOthers returns how many threads of other processes run or wait for a core. Our own are looked at only if there
// are several at all, since each is two files.
func countOthers(proc fs.FS) (others, own int, err error) {
	all, err := countRunnable(proc)
	if err != nil || all <= 2 {
		return max(all-1, 0), 0, err // the other one is who reads
	}
	own = countOwn(proc, "self")
	return max(all-own, 0), own, nil
}

// countRunnable returns how many threads of the host run or wait for a core.
func countRunnable(proc fs.FS) (int, error) {
	load, err := fs.ReadFile(proc, "loadavg") // 0.20 0.18 0.12 3/452 11206
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(load))
	if len(fields) < 4 {
		return 0, errFormat
	}
	running, _, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(running)
	if err != nil {
		return 0, errFormat
	}
	return n, nil
}

// countOwn returns how many threads of a process, and of those it has started, run or wait for a core. What has ended
// meanwhile does not.
func countOwn(proc fs.FS, pid string) (n int) {
	threads, _ := fs.ReadDir(proc, pid+"/task")
	for _, thread := range threads {
		dir := pid + "/task/" + thread.Name()
		stat, _ := fs.ReadFile(proc, dir+"/stat") // 4017 (a name, with blanks) R ...
		if bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" R")) {
			n++
		}
		started, _ := fs.ReadFile(proc, dir+"/children")
		for child := range strings.FieldsSeq(string(started)) {
			n += countOwn(proc, child)
		}
	}
	return n
}
