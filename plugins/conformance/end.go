package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// endGracePeriod is how long a plugin may take to exit, as in the sidecar.
const endGracePeriod = 3 * time.Second

func checkShutdown(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	began := time.Now()
	gracePeriod := t.patience(endGracePeriod)
	if !p.Shutdown(ctx, gracePeriod) {
		t.stop()
		return warn("serve plugin.GRPCController/Shutdown and end; the sidecar kills what does not, so buffers on their way to a file are lost",
			"it was still there %s after Shutdown", gracePeriod)
	}
	return pass("gone %s after Shutdown", milliseconds(time.Since(began)))
}

func checkLifeline(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	began := time.Now()
	if err := p.CutLifeline(); err != nil {
		abandon(fmt.Errorf("close its standard input: %w", err))
	}
	gracePeriod := t.patience(endGracePeriod)
	select {
	case <-p.Gone():
		return pass("gone %s after the end of its standard input", milliseconds(time.Since(began)))
	case <-time.After(gracePeriod):
	case <-ctx.Done():
	}
	t.stop()
	return fail("read standard input on a thread of its own and end the process at once, with its children, when it ends: a plugin that outlives its host keeps its memory and is never stopped",
		"it was still there %s after the end of its standard input", gracePeriod)
}

// checkSecrecy is the last check: it examines the output of all others, and provokes one more error.
func checkSecrecy(ctx context.Context, t *tester) Check {
	for _, kind := range []embed.Kind{embed.Document, embed.Query} {
		must(t.together(ctx, kind, usualTexts[:2]))
	}
	checkUnknown(ctx, t)
	t.stop() // all its output has been read then
	t.said.mu.Lock()
	defer t.said.mu.Unlock()
	if n := len(t.said.leaks); n > 0 {
		slices.Sort(t.said.leaks)
		where := slices.Compact(t.said.leaks)
		return fail("logs and errors are read by more people than the rows: tell the position and the length of a text, never a part of it",
			"%d times a text was quoted in %s", n, strings.Join(where, ", "))
	}
	return pass("%d lines and messages, none with a text", t.said.lines)
}
