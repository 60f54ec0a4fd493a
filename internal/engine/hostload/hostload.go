// Package hostload tells whether others keep all cores of this host busy: then what can wait should.
package hostload

import (
	"bytes"
	"errors"
	"fmt"
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
	fewest   = 10 // looks that make a mean
)

// Threads that wait for a core say that cores are short at moments; idle time, that they are not for long. What comes
// in bursts has both: with thousands of small transactions a second, half of the cores' time is idle and threads wait.
// With writers at full speed it is a fifth, in which they wait for the disk. Once busy, a host has to have some room.
const (
	leastIdle   = 0.25 // of the cores' time
	enoughIdle  = 0.35
	enoughCores = 0.7 // threads that run or wait, of as many as there are cores
)

// A Meter judges the host. It is safe for concurrent use, and does nothing unless it is asked.
type Meter struct {
	look  func() (look, error)
	cores int

	mu    sync.Mutex
	at    time.Time // of the latest look
	last  look
	looks int
	queue float64 // mean
	idle  float64 // mean share of the cores' time
	busy  bool
}

// A look is what the kernel says of one moment.
type look struct {
	others   int     // threads of others that run or wait for a core
	own      int     // those of ours if that was worth a look, else 0
	up, idle float64 // seconds since the host was started, and those in which a core had nothing to do, of all cores
}

// New returns a Meter of this host. On one that has no /proc nothing is ever busy.
func New() *Meter {
	proc := os.DirFS("/proc")
	cores, err := countCores(proc)
	if err != nil {
		return &Meter{}
	}
	// One thread that runs is no crowd: it may be the server's walsender, which works for us.
	return &Meter{cores: max(cores, 2), look: func() (look, error) { return lookAt(proc) }}
}

// Busy reports whether others have kept all cores busy of late. Threads of this process and of those it has started are
// no others, and neither are so many of the server, which work for it. Nothing is learned while an embedder is asked
// and no thread of ours has anything to do: it may be another program, and who keeps the cores busy may work for us.
func (m *Meter) Busy(now time.Time, backends int, asked bool) bool {
	if m.look == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since := now.Sub(m.at)
	if since < interval {
		return m.busy
	}
	seen, err := m.look()
	before := m.last
	m.last = seen
	long := since > memory
	if err != nil || long {
		m.looks, m.queue, m.idle, m.busy = 0, 0, 0, false
	}
	if err != nil || asked && seen.own == 1 { // which is who asks here
		return m.busy
	}
	if m.at = now; long {
		return false // the next one has something to be compared with
	}
	m.looks++
	// While there are few looks the mean is that of them all.
	weight := max(1-math.Exp(-since.Seconds()/window.Seconds()), 1/float64(m.looks))
	m.queue += weight * (float64(max(seen.others-backends, 0)) - m.queue)
	m.idle += weight * (seen.idleSince(before, m.cores) - m.idle)
	mostIdle, least := leastIdle, float64(m.cores)
	if m.busy {
		mostIdle, least = enoughIdle, least*enoughCores
	}
	m.busy = m.looks >= fewest && m.queue >= least && m.idle < mostIdle
	return m.busy
}

// idleSince returns which share of the cores' time since then nobody had. Where the kernel does not count it, they are
// taken for busy.
func (l look) idleSince(then look, cores int) float64 {
	if l.up <= then.up {
		return 0
	}
	return max(l.idle-then.idle, 0) / (l.up - then.up) / float64(cores)
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

// lookAt returns what is to be seen now.
func lookAt(proc fs.FS) (l look, err error) {
	if l.others, l.own, err = countOthers(proc); err != nil {
		return look{}, err
	}
	uptime, err := fs.ReadFile(proc, "uptime") // 41235.07 20431.55
	if err != nil {
		return look{}, err
	}
	if _, err := fmt.Sscan(string(uptime), &l.up, &l.idle); err != nil {
		return look{}, errFormat
	}
	return l, nil
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
