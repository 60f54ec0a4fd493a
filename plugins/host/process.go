package host

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// outputGrace is how long output is still read after a plugin has ended: a process that it started and that left its
// group may hold the pipe open forever.
const outputGrace = 500 * time.Millisecond

// Limit and interval of retries while the program's file is being written.
const (
	busyTimeout = 5 * time.Second
	busyPause   = 20 * time.Millisecond
)

// process is one run of a plugin's program, from before its start until it is reaped. It implements go-plugin's
// runner.Runner. go-plugin's own runner passes on the host's standard input, leaves orphans if the host is killed, does
// not kill children of the plugin, stops reading after a line that is too long, and can panic while it parses output.
type process struct {
	opts    Options
	out     *output
	file    *os.File  // the verified file; nil once started
	stdin   *os.File  // the host's end of the lifeline
	verdict io.Reader // the first line of standard output, for go-plugin

	cmd       *exec.Cmd
	pid       int // set under mu, and before Start returns
	socketDir string
	exited    chan struct{} // closed when the process has been reaped and its group killed
	readers   sync.WaitGroup

	mu      sync.Mutex
	reaped  bool
	reason  string    // why the host ended it; "": it did not
	oneCall bool      // it was killed for its memory during a single call
	hello   string    // first line of its standard output
	spoke   bool      // there was a first line
	died    time.Time // valid once exited
	end     *os.ProcessState
}

var _ runner.Runner = (*process)(nil)

// newProcess prepares a run with go-plugin's environment and folder for sockets.
func newProcess(o Options, out *output, file *os.File, env []string, socketDir string) *process {
	p := &process{opts: o, out: out, file: file, socketDir: socketDir, exited: make(chan struct{})}
	path := o.Path
	p.cmd = &exec.Cmd{Args: append([]string{o.Path}, o.Args...), SysProcAttr: sysProcAttr()}
	if fdPath := verifiedPath(); o.SHA256 != "" && fdPath != "" && !isScript(file) {
		path, p.cmd.ExtraFiles = fdPath, []*os.File{file}
	}
	p.cmd.Path = path
	for key, value := range o.Env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	return p
}

// Start starts the program.
func (p *process) Start(context.Context) error {
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), lifeline.Close())
	}
	stderr, stderrW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), lifeline.Close(), stdout.Close(), stdoutW.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdoutW, stderrW
	p.stdin = lifeline
	verdict, verdictW := io.Pipe()
	p.verdict = verdict

	p.readers.Add(2) // before own waits for them: a program may end immediately
	started := make(chan error)
	ownThread(func() { p.own(started, stdout, stderr) })
	err = <-started
	// The program has its own copies now.
	_, _, _ = stdin.Close(), stdoutW.Close(), stderrW.Close()
	_ = p.file.Close()
	if err != nil {
		_, _, _ = lifeline.Close(), stdout.Close(), stderr.Close()
		_ = verdictW.Close()
		return err
	}
	go p.readStdout(stdout, verdictW)
	go p.readStderr(stderr)
	return nil
}

// ownThread calls run in a goroutine with a thread of its own, which ends with it. It avoids the main thread, which
// cannot end and would be lost to the program.
func ownThread(run func()) {
	go func() {
		runtime.LockOSThread() // and never unlocked
		if !onMainThread() {
			run()
			return
		}
		moved := make(chan struct{})
		go func() { // cannot be on the main thread, which is locked here
			runtime.LockOSThread()
			close(moved)
			run()
		}()
		<-moved
		runtime.UnlockOSThread()
	}()
}

// own starts the program and waits for its end, on a thread of its own: Pdeathsig and no_new_privs are bound to the
// thread that starts the program.
func (p *process) own(started chan<- error, stdout, stderr *os.File) {
	if err := noNewPrivileges(); err != nil {
		started <- err
		return
	}
	if err := p.startIt(); err != nil {
		started <- err
		return
	}
	p.mu.Lock()
	p.pid = p.cmd.Process.Pid
	if p.reason != "" { // killed while it was being started
		_ = p.cmd.Process.Kill()
	}
	p.mu.Unlock()
	p.confine()
	started <- nil

	p.reap()
	deadline := time.Now().Add(outputGrace)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	_ = p.stdin.Close()
	killStrays(p.socketDir)
	p.readers.Wait()
	close(p.exited)
}

// startIt starts the program and retries while its file is busy (ETXTBSY). Even a completely written file can be busy
// briefly: a child process holds its parent's open files until it has executed its program.
func (p *process) startIt() error {
	for deadline := time.Now().Add(busyTimeout); ; {
		again := *p.cmd // a Cmd that failed to start cannot be reused
		err := p.cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) || time.Now().After(deadline) || p.killedFor() != "" {
			return err
		}
		p.cmd = &again
		<-time.After(busyPause)
	}
}

// confine limits what the program can do between two memory measurements. Failures are logged and ignored.
func (p *process) confine() {
	if err := expendable(p.pid); err != nil {
		p.out.log.Debug("plugin not marked as expendable", "pid", p.pid, "error", err)
	}
	if err := noCoreDump(p.pid); err != nil {
		p.out.log.Debug("plugin may dump its memory", "pid", p.pid, "error", err)
	}
	if limit := p.opts.MemoryLimit; limit > 0 {
		const room = 1 << 30 // thread stacks and the like, which are reserved but not used
		if err := limitMemory(p.pid, 2*limit+room); err != nil {
			p.out.log.Warn("plugin memory limit not enforced by the system", "pid", p.pid, "error", err)
		}
	}
}

// reap waits for the end of the program and records it.
func (p *process) reap() {
	if awaitExit(p.pid) {
		died := time.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		// A zombie keeps its pid, so killing its process group is still safe here.
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_ = p.cmd.Wait() // its error is in ProcessState
		go reapGroup(p.pid)
		p.end, p.died, p.reaped = p.cmd.ProcessState, died, true
		return
	}
	_ = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end, p.died, p.reaped = p.cmd.ProcessState, time.Now(), true
}

// readStdout passes on the first line, the handshake, and treats all others as output.
func (p *process) readStdout(r *os.File, verdict *io.PipeWriter) {
	defer p.readers.Done()
	defer func() { _ = r.Close() }()
	defer func() { _ = verdict.Close() }()
	buffered := bufio.NewReaderSize(&lastWords{pipe: r}, maxLine)
	line, err := buffered.ReadSlice('\n')
	p.mu.Lock()
	hello := strings.TrimSpace(string(line))
	p.hello, p.spoke = p.opts.Redact(hello), len(line) > 0
	p.mu.Unlock()
	if _, werr := io.WriteString(verdict, hello+"\n"); werr != nil || err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		_, _ = io.Copy(io.Discard, buffered)
		return
	}
	lines := &splitter{to: p.out}
	_, _ = io.Copy(lines, buffered)
	lines.flush()
}

func (p *process) readStderr(r *os.File) {
	defer p.readers.Done()
	defer func() { _ = r.Close() }()
	lines := &splitter{to: p.out}
	_, _ = io.Copy(lines, &lastWords{pipe: r})
	lines.flush()
}

// kill kills the program and its process group. It does not wait. Only the first reason is kept, and none if the
// program has already ended by itself but is not reaped yet.
func (p *process) kill(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.pid == 0 || !hasEnded(p.pid) {
		p.blameLocked(reason)
	}
	if p.pid == 0 {
		return // own checks the reason
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	_ = syscall.Kill(p.pid, syscall.SIGKILL) // in case the program has left its group
}

// killGreedy kills a program that is above its memory limit. alone: a single call is under way, which may be the cause.
func (p *process) killGreedy(reason string, alone bool) {
	p.mu.Lock()
	p.oneCall = alone && p.reason == ""
	p.mu.Unlock()
	p.kill(reason)
}

// greedy reports whether the program was killed for its memory during a single call.
func (p *process) greedy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oneCall
}

// blame records why the host is about to end the program.
func (p *process) blame(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blameLocked(reason)
}

func (p *process) blameLocked(reason string) {
	p.reason = cmp.Or(p.reason, reason)
}

// killedFor returns why the host ended the program; "" if it did not.
func (p *process) killedFor() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// Hello returns the first line of the program's standard output, and whether there was one.
func (p *process) Hello() (line string, spoke bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello, p.spoke
}

// gone reports whether the program has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// ending returns how and when the program ended. It is valid once gone returns true.
func (p *process) ending() (state *os.ProcessState, died time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end, p.died
}

// The rest of runner.Runner.

// Wait waits until the program has ended and its output has been read.
func (p *process) Wait(context.Context) error {
	<-p.exited
	if state, _ := p.ending(); !state.Success() {
		return errors.New(state.String())
	}
	return nil
}

// Kill implements runner.Runner: go-plugin calls it to give up.
func (p *process) Kill(context.Context) error {
	p.kill("go-plugin gave up on it")
	return nil
}

// Stdout is the first line only; the rest of the stream is logged.
func (p *process) Stdout() io.ReadCloser { return io.NopCloser(p.verdict) }

// Stderr is empty: this package reads the real stream.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name returns the plugin's file.
func (p *process) Name() string { return p.opts.Path }

// ID returns the process id.
func (p *process) ID() string { return strconv.Itoa(p.pid) }

// Diagnose adds nothing: the errors of this package are complete.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost accepts only sockets in the folder of this run.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(filepath.Clean(address)) != p.socketDir {
		return "", "", fmt.Errorf("it listens on %s %q, want a Unix socket in the folder PLUGIN_UNIX_SOCKET_DIR", network,
			withoutTexts(p.opts.Redact(address), nil))
	}
	return network, address, nil
}

// HostToPlugin is unused: the host offers no service to its plugins.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
