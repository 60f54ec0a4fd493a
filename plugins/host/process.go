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

// outputGrace is how long the output of a plugin that has ended is still read: something that it started and that
// left its process group may hold the pipe open for ever.
const outputGrace = 500 * time.Millisecond

// A program's file that is being written is tried again for so long, with such pauses.
const (
	busyTimeout = 5 * time.Second
	busyPause   = 20 * time.Millisecond
)

// process is one run of a plugin's program, from before its start until it is reaped. It is go-plugin's
// runner.Runner: the runner that comes with go-plugin hands on the host's standard input, leaves orphans when the
// host is killed, does not kill what the plugin has started, stops reading a plugin that prints too long a line, and
// parses its output in a way that can panic.
type process struct {
	opts    Options
	out     *output
	file    *os.File  // the verified file; nil once started
	stdin   *os.File  // our end of the lifeline
	verdict io.Reader // what go-plugin reads as standard output: the first line

	cmd       *exec.Cmd
	pid       int // set under mu, and before Start returns
	socketDir string
	exited    chan struct{} // closed when the process has been reaped and its group killed
	readers   sync.WaitGroup

	mu      sync.Mutex
	reaped  bool
	reason  string    // why the host killed it; "": it did not
	oneCall bool      // it was killed for its memory while it had one call
	hello   string    // first line of its standard output
	spoke   bool      // there was one
	died    time.Time // valid once exited
	end     *os.ProcessState
}

var _ runner.Runner = (*process)(nil)

// newProcess prepares a run with the environment and the folder for sockets that go-plugin wants.
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

	p.readers.Add(2) // before own waits for them: a program may end at once
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

// ownThread calls run in a goroutine on a thread that nothing else uses and that ends with it. Not on the main
// thread, which would never end and be of no more use to the program.
func ownThread(run func()) {
	go func() {
		runtime.LockOSThread() // and never unlocked
		if !onMainThread() {
			run()
			return
		}
		moved := make(chan struct{})
		go func() { // cannot be on the main thread: that is held here
			runtime.LockOSThread()
			close(moved)
			run()
		}()
		<-moved
		runtime.UnlockOSThread()
	}()
}

// own starts the program and waits for its end, both on a thread of its own: the kernel's promise to kill the program
// with its parent is bound to the thread that started it, and so is the ban on gaining privileges.
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

// startIt starts the program. A file that somebody is writing cannot be run, and for a moment every program that is
// just being started holds open what its parent writes: so a file that was written by now may still be busy.
func (p *process) startIt() error {
	for deadline := time.Now().Add(busyTimeout); ; {
		again := &exec.Cmd{ // one that did not start cannot be used again
			Path: p.cmd.Path, Args: p.cmd.Args, Env: p.cmd.Env, Stdin: p.cmd.Stdin, Stdout: p.cmd.Stdout, Stderr: p.cmd.Stderr,
			ExtraFiles: p.cmd.ExtraFiles, SysProcAttr: p.cmd.SysProcAttr,
		}
		err := p.cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) || time.Now().After(deadline) || p.killedFor() != "" {
			return err
		}
		p.cmd = again
		<-time.After(busyPause)
	}
}

// confine keeps the program from taking the machine's memory faster than anybody can measure. What the system does
// not offer it does without.
func (p *process) confine() {
	if err := expendable(p.pid); err != nil {
		p.out.log.Debug("plugin not marked as expendable", "pid", p.pid, "error", err)
	}
	if err := noCoreDump(p.pid); err != nil {
		p.out.log.Debug("plugin may dump its memory", "pid", p.pid, "error", err)
	}
	if limit := p.opts.MemoryLimit; limit > 0 {
		const room = 1 << 30 // stacks of threads and the like, which are reserved and not used
		if err := limitMemory(p.pid, 2*limit+room); err != nil {
			p.out.log.Warn("memory not bounded by the system", "pid", p.pid, "error", err)
		}
	}
}

// reap waits for the end of the program and notes it.
func (p *process) reap() {
	if awaitExit(p.pid) {
		died := time.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		// While it is a zombie its number cannot belong to anybody else: the moment to kill what it has left behind.
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_ = p.cmd.Wait() // its error is what end says
		go reapGroup(p.pid)
		p.end, p.died, p.reaped = p.cmd.ProcessState, died, true
		return
	}
	_ = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end, p.died, p.reaped = p.cmd.ProcessState, time.Now(), true
}

// readStdout passes the first line on, which is the handshake, and takes all others as output.
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

// kill kills the program and all that is left of its process group. The first reason stays; there is none when the
// program had ended by itself and nobody had got round to noting it. It does not wait.
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
		return // own sees the reason
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	_ = syscall.Kill(p.pid, syscall.SIGKILL) // in case it has left its group
}

// killGreedy kills a program that is above its memory limit. alone: with one call under way, whose doing it may be.
func (p *process) killGreedy(reason string, alone bool) {
	p.mu.Lock()
	p.oneCall = alone && p.reason == ""
	p.mu.Unlock()
	p.kill(reason)
}

// greedy reports whether the program was killed for its memory while it had one call.
func (p *process) greedy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oneCall
}

// blame notes why the host is about to end the program.
func (p *process) blame(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blameLocked(reason)
}

func (p *process) blameLocked(reason string) {
	p.reason = cmp.Or(p.reason, reason)
}

// killedFor returns why the host ended the program; "" when it did not.
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

// ending describes how the program ended, and when. Only once it is gone.
func (p *process) ending() (state *os.ProcessState, died time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end, p.died
}

// The rest of runner.Runner.

// Wait waits for the end of the program; its output has been read by then.
func (p *process) Wait(context.Context) error {
	<-p.exited
	if state, _ := p.ending(); !state.Success() {
		return errors.New(state.String())
	}
	return nil
}

// Kill is go-plugin's way to give up.
func (p *process) Kill(context.Context) error {
	p.kill("it was given up by go-plugin")
	return nil
}

// Stdout is the first line; the rest of the stream is log.
func (p *process) Stdout() io.ReadCloser { return io.NopCloser(p.verdict) }

// Stderr is empty: this package reads the real one.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name returns the plugin's file.
func (p *process) Name() string { return p.opts.Path }

// ID returns the process id.
func (p *process) ID() string { return strconv.Itoa(p.pid) }

// Diagnose adds nothing: errors of this package say it themselves.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost accepts sockets in the folder made for this run only.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(filepath.Clean(address)) != p.socketDir {
		return "", "", fmt.Errorf("it listens on %s %q, want a Unix socket in the folder PLUGIN_UNIX_SOCKET_DIR", network,
			withoutTexts(p.opts.Redact(address), nil))
	}
	return network, address, nil
}

// HostToPlugin is never needed: the host offers no service to its plugins.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
