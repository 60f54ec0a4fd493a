package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// faults are what EMBEDSIDECAR_PLUGIN_FAULTS asks for: items separated by semicolons, each at most once but for cost,
// which may occur once in each of its two forms.
//
//	cost=2ms/call    each call waits this long; given up when the host gives up
//	cost=100us/text  ... and this long for each text
//	leak=64MiB/call  each call keeps so much memory
//	flood=N/call     each call writes N lines to standard error
//
// and those below, as in crash-on=TOKEN, huge-every=N and burn.
//
// TOKEN is any text without a semicolon, compared as bytes. Costs are waited for, not burned. Further items are in
// breaches.go.
type faults struct {
	perCall, perText time.Duration
	on               map[string]string // the TOKEN of an item
	every            map[string]uint64 // its N
	does             map[string]bool   // items without a value, those of breaches.go among them
	leak, flood      int
}

// The items with a TOKEN, with a number of calls, and without a value.
var (
	// A text that contains TOKEN:
	onTexts = []string{
		"crash-on",    // it kills the process (SIGKILL)
		"panic-on",    // it makes the call panic
		"hang-on",     // the call never returns, even if the host cancels it
		"freeze-on",   // it stops the process (SIGSTOP)
		"nan-on",      // its vector has a NaN
		"inf-on",      // its vector has an infinity
		"zero-on",     // its vector is all zero
		"refuse-on",   // it fails with the class refused
		"too-long-on", // ... too_long
		"invalid-on",  // ... invalid
		"retry-on",    // ... retry_later, after 20 ms
		"swell-on",    // it allocates memory, 64 MiB at a time up to 768, and the call never returns
	}
	// Each Nth call:
	everies = []string{
		"wrong-count-every", // answers with one vector too few
		"wrong-dims-every",  // answers with vectors one number too wide
		"garbage-every",     // answers for texts outside the request, with invalid numbers
		"huge-every",        // answers with 32 MiB
		"unavailable-every", // fails with a retry delay of 20 ms
		"permute-every",     // answers several texts with their vectors shifted by one
	}
	// The plugin, by an item without a value:
	flags = []string{
		// starts two processes before the handshake that never end, one of them in its own session, and writes their
		// pids to the file that EMBEDSIDECAR_PLUGIN_FORKS names
		"fork",
		"other-vectors",    // its vectors do not match its fingerprint
		"burn",             // uses all CPUs after its first call
		"exit-at-start",    // exits before the handshake with status 3
		"crash-at-start",   // is killed before the handshake (SIGKILL)
		"hang-at-start",    // prints nothing
		"garbage-at-start", // prints something other than a handshake
		"describe-fails",   // Describe fails with a configuration error
		"describe-exits",   // Describe exits with status 4
		"describe-hangs",   // Describe never returns
		"new-fingerprint",  // describes a new fingerprint after each start
		"no-tokens",        // has no Tokenize
	}
)

// parseFaults parses the list. Unknown items are errors.
func parseFaults(list string) (faults, error) {
	f := faults{on: map[string]string{}, every: map[string]uint64{}, does: map[string]bool{}}
	if strings.TrimSpace(list) == "" {
		return f, nil
	}
	seen := map[string]bool{}
	for item := range strings.SplitSeq(list, ";") {
		item = strings.TrimSpace(item)
		name, value, hasValue := strings.Cut(item, "=")
		once, err := name, error(nil)
		switch {
		case slices.Contains(breaches, name), slices.Contains(flags, name):
			if hasValue {
				err = errors.New("takes no value")
			}
			f.does[name] = true
		case value == "":
			err = errors.New("unknown, or without a value")
		case name == "cost":
			once, err = f.parseCost(value)
		case name == "leak":
			f.leak, err = parseLeak(value)
		case name == "flood":
			f.flood, err = parseFlood(value)
		case slices.Contains(onTexts, name):
			f.on[name] = value
		case slices.Contains(everies, name):
			f.every[name], err = strconv.ParseUint(value, 10, 32)
			if err == nil && f.every[name] == 0 {
				err = errors.New("want a number from 1")
			}
		default:
			err = errors.New("unknown")
		}
		if err == nil && seen[once] {
			err = errors.New("occurs twice")
		}
		if err != nil {
			return faults{}, fmt.Errorf("item %q: %w", item, err)
		}
		seen[once] = true
	}
	return f, nil
}

func (f *faults) parseCost(value string) (once string, err error) {
	amount, per, _ := strings.Cut(value, "/")
	d, err := time.ParseDuration(amount)
	switch {
	case err != nil:
		return "", err
	case d < 0:
		return "", errors.New("is negative")
	case per == "call":
		f.perCall = d
	case per == "text":
		f.perText = d
	default:
		return "", errors.New(`want DURATION/call or DURATION/text`)
	}
	return "cost per " + per, nil
}

func parseLeak(value string) (int, error) {
	amount, ok := strings.CutSuffix(value, "MiB/call")
	n, err := strconv.Atoi(amount)
	if !ok || err != nil || n < 1 || n > 1<<20 {
		return 0, errors.New("want a number of MiB, as in 64MiB/call")
	}
	return n << 20, nil
}

func parseFlood(value string) (int, error) {
	amount, ok := strings.CutSuffix(value, "/call")
	n, err := strconv.Atoi(amount)
	if !ok || err != nil || n < 1 {
		return 0, errors.New("want a number of lines, as in 1000/call")
	}
	return n, nil
}

// key is the API key in the environment, which this plugin leaks in its output and errors; "" if there is none.
func key() string {
	if value := os.Getenv("EMBEDSIDECAR_PLUGIN_API_KEY"); value != "" {
		return " key=" + value + fmt.Sprintf(" %+q", value)
	}
	return ""
}

// atStart applies the faults before the handshake.
func (f *faults) atStart() {
	switch {
	case f.does["exit-at-start"]:
		for i := range 30 {
			fmt.Fprintf(os.Stderr, "told to exit at start, line %d%s\n", i+1, key())
		}
		os.Exit(3)
	case f.does["crash-at-start"]:
		die(syscall.SIGKILL)
	case f.does["hang-at-start"]:
		select {} // until a signal or the host's timeout
	case f.does["garbage-at-start"]:
		fmt.Println("Segmentation fault (not really)" + key())
	case f.does["fork"]:
		if err := fork(os.Getenv("EMBEDSIDECAR_PLUGIN_FORKS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case f.does["outlives-host"]:
		_ = os.Unsetenv(pluginpb.LifelineKey) // it then watches its parent, which is alive
	}
}

// forked is the argument of processes that fork starts.
const forked = "never-end"

// fork starts two copies of this program that outlive it unless they are killed, and writes their pids to a file.
func fork(list string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var pids strings.Builder
	for _, session := range []bool{false, true} {
		child := exec.Command(self, forked) //nolint:noctx // it must outlive everything
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
		child.Env = os.Environ()
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Fprintln(&pids, child.Process.Pid)
	}
	return os.WriteFile(list, []byte(pids.String()), 0o600) //nolint:gosec // a test names the file
}

// beforeDescribe applies the faults of Describe.
func (f *faults) beforeDescribe() error {
	switch {
	case f.does["describe-fails"]:
		return sdk.Misconfigured(errors.New("told to find no model" + key()))
	case f.does["describe-exits"]:
		fmt.Fprintln(os.Stderr, "told to exit")
		os.Exit(4)
	case f.does["describe-hangs"]:
		select {}
	}
	return nil
}

// beforeCall applies the faults of a whole call.
func (f *faults) beforeCall(ctx context.Context, texts []string) error {
	for _, text := range texts {
		switch {
		case f.has(text, "crash-on"):
			die(syscall.SIGKILL)
		case f.has(text, "freeze-on"):
			die(syscall.SIGSTOP)
		case f.has(text, "hang-on"):
			select {}
		case f.has(text, "swell-on"):
			swell(ctx)
		case f.has(text, "panic-on"):
			panic("told to panic on " + text) // the SDK must not pass on the text
		}
	}
	for i := range f.flood {
		fmt.Fprintln(os.Stderr, "told to say much, line", strconv.Itoa(i+1)+key())
	}
	if f.does["burn"] {
		burning.Do(burn)
	}
	if cost := f.perCall + time.Duration(len(texts))*f.perText; cost > 0 && !sleep.For(ctx, cost) {
		return ctx.Err()
	}
	return nil
}

var burning sync.Once

// burn starts a spinning thread for each CPU.
func burn() {
	for range runtime.NumCPU() {
		go func() {
			for n := uint64(1); ; n = n*6364136223846793005 + 1 {
				if n == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
}

// swell allocates memory until the host kills the process. It stops before the system's own limit, which would end the
// process in another way.
func swell(ctx context.Context) {
	const step, most, pause = 64 << 20, 12, 20 * time.Millisecond
	var taken [][]byte
	for len(taken) < most && ctx.Err() == nil {
		b := make([]byte, step)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		taken = append(taken, b)
		<-time.After(pause)
	}
	<-ctx.Done()
	runtime.KeepAlive(taken)
}

// textError returns the error of one text, or nil.
func (f *faults) textError(text string) *sdk.TextError {
	switch {
	case f.has(text, "refuse-on"):
		return &sdk.TextError{Class: sdk.Refused, Message: "told to refuse it" + key()}
	case f.has(text, "too-long-on"):
		return &sdk.TextError{Class: sdk.TooLong, Message: "told to find it too long"}
	case f.has(text, "invalid-on"):
		return &sdk.TextError{Class: sdk.Invalid, Message: "told to find it invalid: " + text} // a leak, on purpose
	case f.has(text, "retry-on"):
		return &sdk.TextError{Class: sdk.RetryLater, Delay: 20 * time.Millisecond, Message: "told to have it tried again"}
	}
	return nil
}

// spoil makes a vector wrong.
func (f *faults) spoil(a *sdk.Answer, text string) {
	v := a.Vector
	switch {
	case f.has(text, "nan-on"):
		v[len(v)/2] = float32(math.NaN())
	case f.has(text, "inf-on"):
		v[len(v)-1] = float32(math.Inf(-1))
	case f.has(text, "zero-on"):
		if clear(v); a.Indices != nil {
			a.Indices, a.Vector = nil, nil
		}
	}
}

// has reports whether a fault applies to the text.
func (f *faults) has(text, item string) bool {
	return f.on[item] != "" && strings.Contains(text, f.on[item])
}

// die sends a signal to this process and blocks.
func die(sig syscall.Signal) {
	_ = syscall.Kill(os.Getpid(), sig)
	select {}
}
