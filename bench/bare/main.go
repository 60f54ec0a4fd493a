// Command bare is what a sidecar is measured against: the same model with the same threads, its texts already in
// memory and its vectors thrown away. Each line of standard input is a JSON array of texts; the answer is a line with
// the time they took. All texts of a line are embedded in one call, sorted by length under the same budget of tokens:
// the best batches there are.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench-bare: error: %s\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	const folder, library, count = 0, 1, 2
	if len(args) != count {
		return errors.New("usage: bench-bare MODEL-FOLDER ONNXRUNTIME-LIBRARY")
	}
	m, err := model.Open(ctx, model.Options{Folder: args[folder], Library: args[library]})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read texts: %w", err)
		}
		var texts []string
		if err := json.Unmarshal(line, &texts); err != nil {
			return fmt.Errorf("read texts: %w", err)
		}
		began := time.Now()
		if _, err := m.Embed(ctx, embed.Document, texts); err != nil {
			return fmt.Errorf("embed %d texts: %w", len(texts), err)
		}
		fmt.Fprintln(out, time.Since(began))
	}
}
