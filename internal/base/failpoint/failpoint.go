// Package failpoint names the places at which a test can make the program die, stop, wait or fail.
//
// A place calls Hit with its name, "part/what-just-happened". Without failpoints this costs one atomic load. A process
// reads its failpoints from the variable EMBEDSIDECAR_FAILPOINTS at its start. It is the only variable that is read
// outside of cmd/, because plugins and test binaries need it too:
//
//	EMBEDSIDECAR_FAILPOINTS='queue/after-enqueue-commit=kill@3;worker/before-embed=sleep(200ms)'
//
// The actions are
//
//	kill        SIGKILL to this process; nothing after the place runs
//	stop        SIGSTOP to this process; SIGCONT continues it
//	sleep(D)    waits for D, e.g. 200ms
//	error       Hit returns an *Error
//	panic       Hit panics with an *Error
//
// each at every hit, with @N only at the N-th one (counted from 1), and with @N+ from the N-th on.
package failpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Env is the variable with the failpoints of a process.
const Env = "EMBEDSIDECAR_FAILPOINTS"

// Error is what Hit returns for the action error.
type Error struct{ Name string }

func (e *Error) Error() string { return fmt.Sprintf("failpoint %s", e.Name) }

// point is one failpoint.
type point struct {
	hits    atomic.Int64
	from    int64 // first hit that acts
	to      int64 // last hit that acts; 0: no last one
	perform func(name string) error
}

// active holds the failpoints by name; nil: none. The map is replaced, never changed.
var active atomic.Pointer[map[string]*point]

var mu sync.Mutex // guards replacing active

func init() {
	if err := Enable(os.Getenv(Env)); err != nil {
		// A misspelled fault would let a fault test pass for the wrong reason.
		panic(fmt.Sprintf("%s: %v", Env, err))
	}
}

// Hit runs the action of the failpoint with this name, if it is set. It returns an *Error for the action error. It is
// safe for concurrent use.
func Hit(name string) error {
	points := active.Load()
	if points == nil {
		return nil
	}
	p, ok := (*points)[name]
	if !ok {
		return nil
	}
	n := p.hits.Add(1)
	if n < p.from || p.to != 0 && n > p.to {
		return nil
	}
	return p.perform(name)
}

// Enable adds failpoints, written as in the variable. A failpoint of the same name is replaced and counts from 1 again.
// On error it sets nothing.
func Enable(spec string) error {
	points := map[string]*point{}
	var errs []error
	for part := range strings.SplitSeq(spec, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, action, ok := strings.Cut(part, "=")
		name, action = strings.TrimSpace(name), strings.TrimSpace(action)
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("failpoint %q: want name=action", part))
			continue
		}
		p, err := parse(action)
		if err != nil {
			errs = append(errs, fmt.Errorf("failpoint %q: %w", name, err))
			continue
		}
		points[name] = p
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	set(points)
	return nil
}

// Func makes a place call fn at each hit and return its result. Tests in the same process use it to wait for a place
// and to decide when it continues. The returned function removes the failpoint.
func Func(name string, fn func() error) (remove func()) {
	set(map[string]*point{name: {from: 1, perform: func(string) error { return fn() }}})
	return func() { Disable(name) }
}

// Disable removes failpoints; without names it removes all.
func Disable(names ...string) {
	mu.Lock()
	defer mu.Unlock()
	old := active.Load()
	if old == nil {
		return
	}
	left := maps.Clone(*old)
	for _, name := range names {
		delete(left, name)
	}
	if len(names) == 0 || len(left) == 0 {
		active.Store(nil)
		return
	}
	active.Store(&left)
}

func set(points map[string]*point) {
	if len(points) == 0 {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	all := map[string]*point{}
	if old := active.Load(); old != nil {
		maps.Copy(all, *old)
	}
	maps.Copy(all, points)
	active.Store(&all)
}

// parse reads "kill", "kill@3", "sleep(200ms)@2+".
func parse(action string) (*point, error) {
	p := &point{from: 1}
	what, when, limited := strings.Cut(action, "@")
	if limited {
		digits, onwards := strings.CutSuffix(when, "+")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("action %q: want a count from 1 after the @", action)
		}
		p.from = n
		if !onwards {
			p.to = n
		}
	}
	switch what {
	case "kill":
		p.perform = func(string) error { killSelf(); select {} }
	case "stop":
		p.perform = func(string) error { stopSelf(); return nil }
	case "error":
		p.perform = func(name string) error { return &Error{Name: name} }
	case "panic":
		p.perform = func(name string) error { panic(&Error{Name: name}) }
	default:
		arg, ok := strings.CutPrefix(what, "sleep(")
		arg, closed := strings.CutSuffix(arg, ")")
		d, err := time.ParseDuration(arg)
		if !ok || !closed || err != nil {
			return nil, fmt.Errorf("action %q: want kill, stop, error, panic or sleep(DURATION)", action)
		}
		p.perform = func(string) error { time.Sleep(d); return nil }
	}
	return p, nil
}
