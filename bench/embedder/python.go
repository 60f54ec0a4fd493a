package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// python is a process with sentence-transformers.
type python struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	used    time.Duration // CPU time of all encodes so far
	batch   int           // texts in a batch, whichever is fastest
}

func startPython(ctx context.Context, o options, texts []string) (_ *python, err error) {
	p := &python{command: exec.CommandContext(ctx, o.python, filepath.Join("bench", "embedder", "st.py"), o.weights,
		strconv.Itoa(o.threads))}
	p.command.Stderr = os.Stderr
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	const few = 400
	p.batch, err = best([]int{4, 8, 16, 32}, func(batch int) (time.Duration, error) {
		return p.encode(texts[:min(few, len(texts))], batch)
	})
	fmt.Printf("sentence-transformers is fastest with %d texts in a batch\n", p.batch)
	return p, err
}

// encode embeds texts and returns how long the call took, without the way there and back.
func (p *python) encode(texts []string, batch int) (time.Duration, error) {
	line, err := json.Marshal(map[string]any{"batch": batch, "texts": texts})
	if err != nil {
		return 0, err
	}
	var took struct{ Seconds, CPU float64 }
	if _, err = p.in.Write(append(line, '\n')); err == nil {
		if line, err = p.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &took)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("sentence-transformers: %w", err)
	}
	p.used += time.Duration(took.CPU * float64(time.Second))
	return time.Duration(took.Seconds * float64(time.Second)), nil
}

func (p *python) end() {
	_ = p.in.Close()
	_ = p.command.Wait()
}

// ownCPU is the CPU time of this process so far.
func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// processCPU is the CPU time of another process so far; 0 where /proc does not tell.
func processCPU(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	const user, system, ticks = 11, 12, 100 // places behind the name; of a second
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if err != nil || len(fields) <= system {
		return 0
	}
	u, _ := strconv.Atoi(fields[user])
	s, _ := strconv.Atoi(fields[system])
	return time.Duration(u+s) * time.Second / ticks
}

// peak is the most memory that a process has had: "59012 kB".
func peak(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // "": it has gone
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	most, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(most)
}
