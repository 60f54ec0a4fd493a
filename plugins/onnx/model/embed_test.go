package model_test

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
)

func TestEmbed_EmptyTexts(t *testing.T) {
	m := open(t)
	for i, result := range mustEmbed(t, m, "", " \n\t", "\x00\u200b", "[CLS] [SEP][PAD]", "x", "\u0301") {
		if want := i != 4; result.Empty != want || (result.Vector == nil) != want || result.Err != nil {
			t.Errorf("text %d: got empty %t, %d numbers, error %v, want empty %t", i, result.Empty, len(result.Vector),
				result.Err, want)
		}
	}
	if results := mustEmbed(t, m); len(results) != 0 {
		t.Errorf("no texts: got %d results", len(results))
	}
	if results := mustEmbed(t, m, "", ""); !results[0].Empty || !results[1].Empty {
		t.Errorf("only empty texts: got %+v", results)
	}
}

func TestEmbed_HugeTexts(t *testing.T) {
	m := open(t)
	results := mustEmbed(t, m, strings.Repeat("word ", 1<<19), strings.Repeat("x", 4<<20), "word "+strings.Repeat(" ",
		4<<20))
	for i, want := range []struct {
		tokens    int
		truncated bool
	}{{256, true}, {3, false}, {3, false}} {
		if results[i].Tokens != want.tokens || results[i].Truncated != want.truncated {
			t.Errorf("text %d: %d tokens, truncated %t, want %+v", i, results[i].Tokens, results[i].Truncated, want)
		}
	}
}

// Concurrent calls of every size get the same vectors as single calls.
func TestEmbed_Concurrently(t *testing.T) {
	m, texts := open(t), textsOf(reference(t))[:40]
	want := mustEmbed(t, m, texts...)
	var group sync.WaitGroup
	for caller := range 8 {
		group.Go(func() {
			for count := 1 + caller; count <= len(texts); count += 13 {
				start := (caller * 7) % (len(texts) - count + 1)
				results, err := m.Embed(t.Context(), embed.Document, texts[start:start+count])
				if err != nil {
					t.Error(err)
					return
				}
				for i, got := range results {
					if got.Empty != want[start+i].Empty || !got.Empty && distance(got.Vector, want[start+i].Vector) > near {
						t.Errorf("caller %d: text %d has the vector of another", caller, start+i)
					}
				}
			}
		})
	}
	group.Wait()
}

// long makes texts that keep the network busy for a second or more.
func long(count int) []string {
	texts := make([]string, count)
	for i := range texts {
		texts[i] = strings.Repeat("number "+strconv.Itoa(i)+" ", 200)
	}
	return texts
}

func TestEmbed_SmallCallsDoNotWaitBehindALargeOne(t *testing.T) {
	m := open(t)
	done := make(chan error, 1)
	go func() {
		_, err := m.Embed(t.Context(), embed.Document, long(100))
		done <- err
	}()
	small := 0
	for {
		mustEmbed(t, m, "how do I reset my password?")
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if small < 10 {
				t.Errorf("only %d small calls were answered during a call of 50 runs", small)
			}
			return
		default:
			small++
		}
	}
}

func TestEmbed_EndsWithItsContext(t *testing.T) {
	m := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := m.Embed(ctx, embed.Document, long(400))
		done <- err
	}()
	mustEmbed(t, m, "a call between two runs of the large one")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := m.Embed(ctx, embed.Document, []string{"x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	mustEmbed(t, m, "the next call")
}

// An error of the library must reach the caller as a transient error of the whole call.
func TestEmbed_NetworkFails(t *testing.T) {
	m, err := openTiny(t, map[string]string{
		"config.json":    `{"max_position_embeddings": 64, "hidden_size": 3}`, // does not give the number of tokens
		"tokenizer.json": strings.Replace(tiny.Files()["tokenizer.json"], `"passage":7`, `"passage":7000`, 1),
	})
	if err == nil { // the token occurs at the warm-up or here
		_, err = m.Embed(t.Context(), embed.Document, []string{"passage"})
		var whole *embed.Error
		if !errors.As(err, &whole) || whole.Code != "run_failed" {
			t.Errorf("got %v, want run_failed", err)
		}
		return
	}
	wantError(t, err, "run network")
}

// Memory does not grow after the first round, with any number of texts of any lengths.
func TestEmbed_MemoryStaysFlat(t *testing.T) {
	m := open(t)
	round := func(seed int) {
		var texts []string
		for i := range 120 {
			texts = append(texts, strings.Repeat("flat ", 1+(i*(seed+3))%90))
		}
		for start := 0; start < len(texts); {
			count := 1 + (start+seed)%17
			mustEmbed(t, m, texts[start:min(start+count, len(texts))]...)
			start += count
		}
	}
	for seed := range 2 {
		round(seed)
	}
	before := residentBytes(t)
	for seed := range 4 {
		round(seed + 2)
	}
	if grown := residentBytes(t) - before; grown > 8<<20 {
		t.Errorf("memory grew by %d MiB in 480 texts", grown>>20)
	}
}

// residentBytes returns the memory that the process holds, C and Go together.
func residentBytes(t testing.TB) int64 {
	t.Helper()
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
