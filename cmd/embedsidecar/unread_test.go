package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_ALogThatNobodyReads: a sidecar and a query server survive the end of their log's reader.
func TestP5_ALogThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	for _, args := range [][]string{{"run"}, {"serve", "--http", "127.0.0.1:0", "--no-auth"}} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := s.command(append(args, "--config", file, "--log-format", "json")...)
		c.Stdout, c.Stderr = writer, writer
		p, err := testenv.StartProcess(c)
		if err != nil {
			t.Fatal(err)
		}
		_ = writer.Close()
		started := map[string]string{"run": `"streaming"`, "serve": `"queries are answered"`}[args[0]]
		var log strings.Builder
		for lines := bufio.NewScanner(io.TeeReader(reader, &log)); ; {
			if !lines.Scan() {
				t.Fatalf("%s has ended:\n%s", args[0], &log)
			}
			if strings.Contains(lines.Text(), started) {
				break
			}
		}
		_ = reader.Close()
		if args[0] == "run" {
			s.db.MustExec(`INSERT INTO docs VALUES (100, 'more')`)
			s.stands("docs", health.UpToDate)
			s.vectorsOf("docs_embedding WHERE id = 100", 1)
			s.run(0, "reload", "--config", file)
		}
		for _, signal := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
			if err := p.Signal(signal); err != nil {
				t.Errorf("%s: %v", args[0], err)
			}
		}
		<-p.Done
		if status := p.ExitCode(); status != 0 {
			t.Errorf("%s ended with status %d", args[0], status)
		}
	}
}
