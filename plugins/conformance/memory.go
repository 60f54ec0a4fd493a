package conformance

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

const (
	mib = 1 << 20
	// A leak of a few bytes a text is a matter of days; what grows by so much within the soak is a matter of hours.
	leakFails = 32 * mib
	leakWarns = 8 * mib
	rounds    = 40 // of the soak, at least
)

// checkMemory works through ever new texts and compares the second quarter with the last: caches and heaps fill up in
// the first.
func checkMemory(ctx context.Context, t *tester) finding {
	t.stop() // what the largest calls have left in its heap would hide a leak, or look like one
	texts := t.split(sentences(9, t.batch(64)))[0]
	began := time.Now()
	must(t.vectors(ctx, embed.Document, texts))
	if _, ok := resident(t.run.Pid()); !ok {
		return warn("run this on Linux", "the memory of a process cannot be read on this system")
	}
	// Enough rounds to see a slope, also of a slow model.
	for took := time.Since(began); took > t.opts.Soak/rounds && len(texts) > 1; took /= 2 {
		texts = texts[:len(texts)/2]
	}
	var samples []int64
	done := 0
	began = time.Now()
	for seed := uint64(1000); time.Since(began) < t.opts.Soak || len(samples) < rounds; seed++ {
		round := sentences(seed, len(texts))
		must(t.together(ctx, embed.Document, round))
		bytes, _ := resident(t.run.Pid())
		samples = append(samples, bytes)
		done += len(round)
	}
	quarter := len(samples) / 4
	second, third, last := median(samples[quarter:2*quarter]), median(samples[2*quarter:3*quarter]),
		median(samples[3*quarter:])
	growth := last - second
	const advice = "something keeps memory for each call: look for lists that grow, caches without a limit, tensors that are never freed"
	report := func(as func(string, string, ...any) finding) finding {
		return as(advice, "%d MiB grew to %d MiB in the second half of %d texts", second/mib, last/mib, done)
	}
	steady := third-second > growth/4 // not one late step
	switch {
	case growth > leakFails && growth > second/10 && steady:
		return report(fail)
	case growth > leakWarns && growth > second/20:
		return report(warn)
	}
	return pass("%d MiB, then %d MiB over %d texts", second/mib, last/mib, done)
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// resident adds up the resident memory of a process group, in bytes. False: this system does not tell.
func resident(group int) (int64, bool) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return 0, false
	}
	var pages int64
	found := false
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// The name may hold anything, but no later field a bracket.
		fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
		const pgrp, rss = 2, 21 // proc(5), counted from the state
		if len(fields) <= rss || fields[pgrp] != strconv.Itoa(group) {
			continue
		}
		n, err := strconv.ParseInt(fields[rss], 10, 64)
		if err != nil {
			continue
		}
		pages, found = pages+n, true
	}
	return pages * int64(os.Getpagesize()), found
}
