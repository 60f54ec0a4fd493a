package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func parseBool(s string) (bool, error) {
	switch s {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("expected true or false, not %q", s)
}

func parseInt(s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("expected a whole number, not %q", s)
	}
	if n < low || n > high {
		return 0, fmt.Errorf("expected a number from %d to %d, not %d", low, high, n)
	}
	return n, nil
}

// parseAuto reads a number, or "auto" for 0.
func parseAuto(s string, high int) (int, error) {
	if s == "auto" {
		return 0, nil
	}
	n, err := parseInt(s, 0, high)
	if err != nil {
		return 0, fmt.Errorf("%w; auto lets the program choose", err)
	}
	return n, nil
}

// parseDuration reads 500ms, 30s, 5m, 1h30m.
func parseDuration(s string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, number := strconv.ParseFloat(s, 64); number == nil {
			return 0, fmt.Errorf("%q has no unit: write %ss, %sm or the like", s, s, s)
		}
		return 0, fmt.Errorf("expected a duration such as 500ms, 30s or 5m, not %q", s)
	}
	if d < low || d > high {
		return 0, fmt.Errorf("expected a duration from %s to %s, not %s", formatDuration(low), formatDuration(high), s)
	}
	return d, nil
}

func formatDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = strings.TrimSuffix(s, zero[1:])
		}
	}
	return s
}

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// parseSize reads 64MiB, 1.5GiB, 100kB; a bare number is bytes.
func parseSize(s string, low, high int64) (int64, error) {
	number, factor := s, int64(1)
	for _, unit := range units {
		if rest, ok := strings.CutSuffix(s, unit.suffix); ok {
			number, factor = strings.TrimRight(rest, " "), unit.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || strings.ContainsAny(number, "xXpP_") {
		return 0, fmt.Errorf("expected a size such as 64MiB or 1GiB, not %q", s)
	}
	if size := n * float64(factor); size < float64(low) || size > float64(high) {
		return 0, fmt.Errorf("expected a size from %s to %s, not %s", formatSize(low), formatSize(high), s)
	}
	return int64(n * float64(factor)), nil
}

func formatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if n != 0 && n%units[i].bytes == 0 {
			return strconv.FormatInt(n/units[i].bytes, 10) + units[i].suffix
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func parseLevel(s string) (slog.Level, error) {
	switch s {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("expected debug, info, warn or error, not %q", s)
}

var lanes = []string{pipeline.Low: "low", pipeline.Normal: "normal", pipeline.High: "high", pipeline.Urgent: "urgent"}

func parseLane(s string) (pipeline.Lane, error) {
	for lane, name := range lanes {
		if s == name {
			return pipeline.Lane(lane), nil
		}
	}
	return 0, fmt.Errorf("expected %s, not %q", "low, normal, high or urgent", s)
}

func parseSHA256(s string) (string, error) {
	s = strings.ToLower(strings.TrimPrefix(s, "sha256:"))
	if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return "", errors.New("expected a SHA-256 of 64 hexadecimal digits")
	}
	return s, nil
}

func oneOf(s string, choices ...string) (string, error) {
	if slices.Contains(choices, s) {
		return s, nil
	}
	last := len(choices) - 1
	return "", fmt.Errorf("expected %s or %s, not %q", strings.Join(choices[:last], ", "), choices[last], s)
}

// parseStored reads the type of a destination.
func parseStored(v string) (pipeline.Stored, error) {
	choice, err := oneOf(v, pipeline.StoredTypes()...)
	return pipeline.Stored(choice), err
}

// parseIndex reads the kind of an index; none is the empty string.
func parseIndex(v string) (string, error) {
	choice, err := oneOf(v, "hnsw", "none")
	if choice == "none" {
		choice = ""
	}
	return choice, err
}
