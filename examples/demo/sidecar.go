package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	slotName        = "demo_slot"
	publicationName = "demo_pub"
	pipelineName    = "public.packages"

	// socketsRoom is what a temporary folder's name may have so that a plugin's socket in it still has a name.
	socketsRoom = 25
)

// sidecar runs the real program as a child process, and knows whether its end was wanted.
type sidecar struct {
	program string // as it is shown
	url     string // of the database, without password
	environ []string
	mark    string // a variable that all its processes have
	out     *console
	log     *os.File
	broken  bool              // it will be killed: leases shall be lost sooner
	ended   func(cause error) // called when it ends by itself
	counts  counters

	mu      sync.Mutex
	current *child
	ops     string // address of /metrics
	wanted  bool   // it should be running
	starts  int
	seen    sync.WaitGroup
}

// findProgram returns the path of the program, a short one if there is.
func findProgram(bin string) (string, error) {
	program := filepath.Join(bin, "embedsidecar")
	if _, err := os.Stat(program); err != nil {
		return "", fail(fmt.Errorf("the program is missing: %w", err), "build it: make build",
			"or name the folder it is in: --bin FOLDER")
	}
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, program); err == nil && strings.ContainsRune(short, filepath.Separator) &&
			!strings.HasPrefix(short, "..") {
			return short, nil
		}
	}
	return filepath.Abs(program)
}

// newSidecar prepares it. All its files go into dir.
func newSidecar(o options, program string, out *console, dir, url, password string, environ []string) (*sidecar,
	error,
) {
	log, err := os.Create(filepath.Join(dir, "sidecar.log"))
	if err != nil {
		return nil, fmt.Errorf("make the sidecar's log: %w", err)
	}
	s := &sidecar{
		program: program, url: url, mark: "EMBEDSIDECAR_PLUGIN_DEMO=" + rand.Text(), out: out, log: log,
		broken: o.broken,
	}
	s.environ = append(cleanEnviron(environ), s.mark, "PGPASSWORD="+password, "EMBEDSIDECAR_DATABASE_URL="+url)
	if len(dir) <= socketsRoom {
		s.environ = append(s.environ, "TMPDIR="+dir) // what a killed one leaves behind goes with the folder
	}
	return s, nil
}

// cleanEnviron leaves out what would configure the sidecar otherwise than the command line that is shown.
func cleanEnviron(environ []string) []string {
	keep := []string{"EMBEDSIDECAR_PLUGIN", "EMBEDSIDECAR_MODEL", "EMBEDSIDECAR_ONNXRUNTIME", "EMBEDSIDECAR_THREADS"}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, "PG") ||
			strings.HasPrefix(entry, "EMBEDSIDECAR_") && !slices.ContainsFunc(keep,
				func(k string) bool { return strings.HasPrefix(entry, k) })
	})
}

// runArgs are the flags of `embedsidecar run`.
func (s *sidecar) runArgs(ops string) []string {
	args := []string{
		"run", "--database-url", s.url, "--table", "public.packages", "--columns", "name,summary", "--into", "embedding",
		"--slot", slotName, "--publication", publicationName, "--ops-listen", ops,
	}
	if s.broken {
		args = append(args, "--lease", "5s")
	}
	return args
}

// start starts it on a free port for its metrics.
func (s *sidecar) start(ctx context.Context) error {
	ops, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	args := s.runArgs(ops)
	s.mu.Lock()
	first := s.starts == 0
	s.mu.Unlock()
	if first {
		s.out.say("  %s", shell(append([]string{s.program}, args...)))
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.program, args...) // it is ended in order, not by ctx
	cmd.Env = s.environ
	cmd.Stdout = s.log
	cmd.Stderr = &teller{to: s.log, out: s.out, silent: !first}
	c, err := startChild(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.ops, s.wanted = c, ops, true
	s.starts++
	s.seen.Go(func() { s.watch(c) })
	s.seen.Go(func() { s.scrapeAlways(context.WithoutCancel(ctx), c) })
	return nil
}

// watch waits for a child's end and tells when nobody wanted it.
func (s *sidecar) watch(c *child) {
	<-c.done
	s.mu.Lock()
	unwanted := s.wanted && s.current == c
	s.mu.Unlock()
	if unwanted {
		s.ended(fmt.Errorf("the sidecar ended by itself: %w", endOf(c.err)))
	}
}

func endOf(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// take marks the running child as one whose end is wanted and returns it; nil when none runs.
func (s *sidecar) take() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = false
	return s.current
}

// kill ends it by SIGKILL; start starts the next.
func (s *sidecar) kill(ctx context.Context) error {
	s.scrape(ctx)
	if c := s.take(); c != nil {
		return c.kill()
	}
	return nil
}

// stop ends it as an init system would.
func (s *sidecar) stop() error {
	const timeout = time.Minute
	c := s.take()
	if c == nil {
		return nil
	}
	err := c.stop(timeout)
	s.seen.Wait()
	return err
}

// plugins returns the processes of its plugins.
func (s *sidecar) plugins() []int {
	s.mu.Lock()
	own := 0
	if s.current != nil {
		own = s.current.pid()
	}
	s.mu.Unlock()
	return slices.DeleteFunc(processesWith(s.mark), func(pid int) bool { return pid == own })
}

// shown runs another command of the program after showing its command line.
func (s *sidecar) shown(ctx context.Context, args ...string) (stdout []byte, err error) {
	s.out.say("  %s", shell(append([]string{s.program}, args...)))
	return s.command(ctx, args...)
}

// command runs another command of the program, which finds the database in its environment, and returns what it
// printed.
func (s *sidecar) command(ctx context.Context, args ...string) (stdout []byte, err error) {
	cmd := exec.Command(s.program, args...) //nolint:noctx // it is ended in order below
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environ, &out, &errs
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), c.stop(5*time.Second))
	}
	if c.err != nil {
		err = fmt.Errorf("%s: %w\n%s", shell(append([]string{s.program}, args...)), c.err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), err
}

// tail returns the last lines of the log that are more than life events, for an error.
func (s *sidecar) tail(lines int) string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	all = slices.DeleteFunc(all, func(l string) bool {
		return !strings.HasPrefix(l, "embedsidecar: ") && !strings.Contains(l, `"level":"WARN"`) &&
			!strings.Contains(l, `"level":"ERROR"`)
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// teller passes on a program's messages to its log, and those for people to the console: what it made, and what went
// wrong.
type teller struct {
	to     *os.File
	out    *console
	silent bool
	rest   []byte
}

func (t *teller) Write(p []byte) (int, error) {
	if !t.silent {
		t.rest = append(t.rest, p...)
		for {
			line, rest, whole := bytes.Cut(t.rest, []byte("\n"))
			if !whole {
				break
			}
			t.rest = rest
			if text := string(line); strings.HasPrefix(text, "made ") || strings.HasPrefix(text, "embedsidecar: ") {
				t.out.say("  | %s", text)
			}
		}
	}
	return t.to.Write(p)
}

func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// shell writes a command line as one would type it.
func shell(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " '\"$&|;<>()*?\\") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted[i] = w
	}
	return strings.Join(quoted, " ")
}
