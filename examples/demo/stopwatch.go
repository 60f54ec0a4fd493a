package main

import (
	"fmt"
	"strings"
	"time"
)

// stopwatch notes how long each phase took.
type stopwatch struct {
	start, last time.Time
	laps        []string
}

func newStopwatch() *stopwatch {
	now := time.Now()
	return &stopwatch{start: now, last: now}
}

func (s *stopwatch) lap(name string) time.Duration {
	now := time.Now()
	took := now.Sub(s.last)
	s.last = now
	s.laps = append(s.laps, fmt.Sprintf("%s %.1f s", name, took.Seconds()))
	return took
}

func (s *stopwatch) String() string {
	return fmt.Sprintf("%s; in all %.1f s", strings.Join(s.laps, ", "), time.Since(s.start).Seconds())
}
