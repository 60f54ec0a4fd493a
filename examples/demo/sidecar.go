package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// sidecar runs the real program as a child process.
type sidecar struct {
	program string
	environ []string
	mark    string // an environment variable of all its processes
	out     io.Writer
	log     *os.File
	current *testenv.Process
	starts  int
}

// newSidecar prepares it. All its files go into dir.
func newSidecar(program, dir, url, password string, out io.Writer) (*sidecar, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w: build it with make build, or name its folder with --bin", err)
	}
	log, err := os.Create(filepath.Join(dir, "sidecar.log"))
	if err != nil {
		return nil, err
	}
	s := &sidecar{program: program, mark: "EMBEDSIDECAR_PLUGIN_DEMO=" + filepath.Base(dir), out: out, log: log}
	s.environ = append(cleanEnviron(os.Environ()), s.mark, "TMPDIR="+dir, "PGPASSWORD="+password,
		"EMBEDSIDECAR_DATABASE_URL="+url)
	return s, nil
}

// cleanEnviron removes variables that would override the shown command line.
func cleanEnviron(environ []string) []string {
	kept := []string{"EMBEDSIDECAR_PLUGIN", "EMBEDSIDECAR_MODEL", "EMBEDSIDECAR_ONNXRUNTIME", "EMBEDSIDECAR_THREADS"}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, "PG") || strings.HasPrefix(entry, "EMBEDSIDECAR_") &&
			!slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(entry, k) })
	})
}

// start starts `embedsidecar run`. stop ends it, not ctx.
func (s *sidecar) start(ctx context.Context) (err error) {
	args := []string{"run", "--table", table, "--columns", "name,summary", "--into", "embedding", "--set", "lease=5s"}
	s.starts++
	if s.starts == 1 {
		fmt.Fprintf(s.out, "  embedsidecar %s\n", strings.Join(args, " "))
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environ, s.log, s.log
	s.current, err = testenv.StartProcess(cmd)
	return err
}

// kill kills it by SIGKILL.
func (s *sidecar) kill() error {
	err := s.current.Signal(syscall.SIGKILL)
	<-s.current.Done
	return err
}

// stop ends it as an init system does, and checks that none of its processes is left.
func (s *sidecar) stop() error {
	const timeout = time.Minute
	if s.current == nil {
		return s.log.Close()
	}
	_ = s.current.Signal(syscall.SIGTERM)
	deadline := time.After(timeout)
	select {
	case <-s.current.Done:
	case <-deadline:
		return errors.Join(errors.New("the sidecar did not end"), s.kill())
	}
	for len(s.processes()) > 0 {
		select {
		case <-deadline:
			return fmt.Errorf("processes were left behind: %v", s.processes())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if code := s.current.ExitCode(); code != 0 {
		return fmt.Errorf("the sidecar ended with status %d\n%s", code, s.tail())
	}
	fmt.Fprintf(s.out, "\nthe sidecar was started %d time(s) and ended in order; no process is left behind\n", s.starts)
	return s.log.Close()
}

// shown prints a command line of the program, runs it and prints its output.
func (s *sidecar) shown(ctx context.Context, args ...string) error {
	fmt.Fprintf(s.out, "  embedsidecar %s\n", strings.Join(args, " "))
	answer, err := s.command(ctx, args...)
	for line := range strings.Lines(string(answer)) {
		fmt.Fprintf(s.out, "    %s\n", strings.TrimRight(line, " \n"))
	}
	return err
}

// command runs another command of the program, with the database in its environment.
func (s *sidecar) command(ctx context.Context, args ...string) (stdout []byte, err error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environ, &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("embedsidecar %s: %w\n%s\n%s", args[0], err, errs.String(), s.tail())
	}
	return out.Bytes(), err
}

// processes returns the processes with the mark, except the sidecar: its plugins and their children.
func (s *sidecar) processes() []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	var found []int
	for _, file := range files {
		environ, err := os.ReadFile(file) // fails for other users' processes and for those that just ended
		if err != nil || !bytes.Contains(environ, []byte(s.mark+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && pid != s.current.PID() && testenv.Running(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// tail returns the last lines of the log.
func (s *sidecar) tail() string {
	const lines = 8
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
