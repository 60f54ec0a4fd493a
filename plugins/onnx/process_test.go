//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// statusBytes reads a line of the plugin's /proc/PID/status, such as VmRSS or VmHWM.
func statusBytes(t *testing.T, h *host.Host, line string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), line+":")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// ticks reads how much CPU time the plugin has used, in hundredths of a second.
func ticks(t *testing.T, h *host.Host) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return user + system
}

func startReal(t *testing.T) *host.Host {
	t.Helper()
	return start(t, map[string]string{modelKey: onnxtest.Model(t), libraryKey: onnxtest.Library(t), threadsKey: "2"})
}

func mustEmbed(t *testing.T, h *host.Host, texts []string) {
	t.Helper()
	if _, err := h.Embed(t.Context(), embed.Document, texts); err != nil {
		t.Fatal(err)
	}
}

// mixed returns realistic texts: most are short, and neighbours differ.
func mixed(round, count int) []string {
	texts := make([]string, count)
	for i := range texts {
		words := 1 + (i*i+round)%9
		if i%64 == round%64 {
			words = 300
		}
		texts[i] = strings.Repeat(fmt.Sprintf("word%d ", i%7), words) + strconv.Itoa(round*count+i)
	}
	return texts
}

// The plugin's memory does not grow with the number of texts. make test-memory embeds 200,000.
func TestPlugin_MemoryStaysFlat(t *testing.T) {
	total := 2000
	if text := os.Getenv("EMBEDSIDECAR_MEMORY_TEXTS"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	h := startReal(t)
	const call = 256
	var resident []int
	for seen, round := 0, 0; seen < total; seen, round = seen+call, round+1 {
		mustEmbed(t, h, mixed(round, call))
		resident = append(resident, statusBytes(t, h, "VmRSS"))
	}
	// The first quarter fills buffers; growth after that would not stop.
	quarter := len(resident) / 4
	early, late := slices.Max(resident[quarter:2*quarter]), slices.Max(resident[3*quarter:])
	t.Logf("%d texts: %d MiB at most in the second quarter, %d MiB in the last", total, early>>20, late>>20)
	if late > early+16<<20 {
		t.Errorf("grew from %d to %d MiB", early>>20, late>>20)
	}
}

// Texts of megabytes need a few times their size in memory, not a hundred times.
func TestPlugin_MemoryOfHugeTexts(t *testing.T) {
	h := startReal(t)
	mustEmbed(t, h, mixed(0, 256))
	before := statusBytes(t, h, "VmHWM")
	const megabytes, texts = 2, 8
	huge := make([]string, texts)
	for i := range huge {
		huge[i] = strings.Repeat("some words and ", megabytes<<20/15) + strconv.Itoa(i)
	}
	for range 3 {
		mustEmbed(t, h, huge)
	}
	grown := statusBytes(t, h, "VmHWM") - before
	t.Logf("%d MB of text: %d MiB more at most", megabytes*texts, grown>>20)
	if grown > 10*megabytes*texts<<20 {
		t.Errorf("%d MB of text took %d MiB of memory", megabytes*texts, grown>>20)
	}
}

// Between two calls the plugin's threads sleep, because the database uses the same CPUs.
func TestPlugin_IdleCostsNothing(t *testing.T) {
	h := startReal(t)
	mustEmbed(t, h, mixed(0, 64))
	const span, most = 500 * time.Millisecond, 10 // hundredths of a second: one thread that spins would use 50
	least := 1 << 30
	for range 3 { // the garbage collector may have something to finish
		before := ticks(t, h)
		<-time.After(span)
		least = min(least, ticks(t, h)-before)
	}
	if least > most {
		t.Errorf("used %d ms of CPU time in %s without a call", 10*least, span)
	}
}
