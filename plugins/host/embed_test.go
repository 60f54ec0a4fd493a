package host_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

func TestEmbed_AnswersInOrder(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	h := open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_DIMS": "7", "EMBEDSIDECAR_PLUGIN_CALLS": calls}))
	desc, err := h.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := embed.Description{
		Plugin: "fake", Version: "1.0.0", Model: "fake",
		Fingerprint: "fake-1-splitmix64-sha256-dims7", Dims: 7, Deterministic: true,
	}
	if diff := cmp.Diff(want, desc); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
	texts := []string{"two words", "", "ünï çødé 🦆", " \n\t", "two words", "\x00"}
	got, err := h.Embed(t.Context(), embed.Query, texts)
	if err != nil {
		t.Fatal(err)
	}
	wantResults := []embed.Result{
		{Vector: vector.Of(texts[0], 7), Tokens: 2},
		{Empty: true},
		{Vector: vector.Of(texts[2], 7), Tokens: 3},
		{Empty: true},
		{Vector: vector.Of(texts[4], 7), Tokens: 2},
		{Vector: vector.Of(texts[5], 7), Tokens: 1},
	}
	if diff := cmp.Diff(wantResults, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if got, err := h.Embed(t.Context(), embed.Document, nil); err != nil || len(got) != 0 {
		t.Errorf("no texts: %v, %v", got, err)
	}
	recorded, err := vector.ReadCalls(calls)
	if err != nil {
		t.Fatal(err)
	}
	wantCall := vector.Call{Kind: "query"}
	for _, text := range texts {
		wantCall.Hashes = append(wantCall.Hashes, vector.Hash(text))
	}
	if diff := cmp.Diff([]vector.Call{wantCall}, recorded); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if s := h.Stats(); !s.Up || s.Calls != 1 || s.Texts != 6 || s.FailedCalls != 0 || s.Starts != 1 || s.Restarts() != 0 ||
		s.Version != "1.0.0" {
		t.Errorf("stats: %+v", s)
	}
}

func TestEmbed_SplitsLargeCalls(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]struct {
		env  map[string]string
		want []int // texts of each call
	}{
		"texts": {map[string]string{"EMBEDSIDECAR_PLUGIN_MAX_BATCH": "4"}, []int{4, 4, 2}},
		"bytes": {map[string]string{"EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES": "30"}, []int{3, 3, 3, 1}},
		"both": {
			map[string]string{"EMBEDSIDECAR_PLUGIN_MAX_BATCH": "2", "EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES": "30"},
			[]int{2, 2, 2, 2, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := filepath.Join(t.TempDir(), "calls")
			limit.env["EMBEDSIDECAR_PLUGIN_CALLS"] = calls
			h := open(t, options(limit.env))
			var texts []string
			for i := range 10 {
				texts = append(texts, fmt.Sprintf("text %05d", i)) // 10 bytes
			}
			for i, r := range mustEmbed(t, h, texts...) {
				if diff := cmp.Diff(vector.Of(texts[i], 384), r.Vector); diff != "" {
					t.Errorf("vector %d (-want +got):\n%s", i, diff)
				}
			}
			recorded, err := vector.ReadCalls(calls)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, c := range recorded {
				got = append(got, len(c.Hashes))
			}
			if diff := cmp.Diff(limit.want, got); diff != "" {
				t.Errorf("texts of the calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEmbed_KeepsBadTextsToItself(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	h := open(t, options(map[string]string{
		"EMBEDSIDECAR_PLUGIN_CALLS":           calls,
		"EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES": "100",
	}))
	got := mustEmbed(t, h, "good", "bad \xff", strings.Repeat("x", 101), "fine")
	for i, want := range []string{"", "invalid", "too_long", ""} {
		checkText(t, got[i], want, embed.Data)
	}
	recorded, err := vector.ReadCalls(calls)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]vector.Call{{Kind: "document", Hashes: []string{vector.Hash("good"), vector.Hash("fine")}}},
		recorded); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	// No text is left to send.
	checkText(t, mustEmbed(t, h, "\xff")[0], "invalid", embed.Data)
}

// checkText checks the outcome of one text; code "" means a vector.
func checkText(t *testing.T, r embed.Result, code string, class embed.Class) {
	t.Helper()
	if code == "" {
		if r.Err != nil || r.Vector == nil {
			t.Errorf("got %v and vector %v, want a vector", r.Err, r.Vector != nil)
		}
		return
	}
	var text *embed.TextError
	if !errors.As(r.Err, &text) || text.Code != code || text.Class != class || r.Vector != nil {
		t.Errorf("got %v and vector %v, want %s %s and none", r.Err, r.Vector != nil, class, code)
	}
}

func TestEmbed_ReportsOutcomesOfSingleTexts(t *testing.T) {
	t.Parallel()
	h := faulty(t, "nan-on=NAN;inf-on=INF;zero-on=ZERO;refuse-on=REFUSE;too-long-on=LONG;invalid-on=INVALID;retry-on=RETRY")
	got := mustEmbed(t, h, "a", "has NAN", "has INF", "has ZERO", "has REFUSE", "has LONG", "has INVALID and a secret",
		"has RETRY", "z")
	for i, want := range []string{
		"", "not_finite", "not_finite", "zero_vector", "refused", "too_long", "invalid",
		"retry_later", "",
	} {
		class := embed.Data
		if want == "retry_later" {
			class = embed.Transient
		}
		checkText(t, got[i], want, class)
	}
	if later, ok := errors.AsType[*embed.TextError](got[7].Err); !ok || later.RetryAfter != 20*time.Millisecond {
		t.Errorf("retry later: %+v, want after 20ms", got[7].Err)
	}
	if msg := got[6].Err.Error(); strings.Contains(msg, "secret") {
		t.Errorf("the message holds the text: %s", msg)
	}
	if diff := cmp.Diff(vector.Of("z", 384), got[8].Vector); diff != "" {
		t.Errorf("vector of the last text (-want +got):\n%s", diff)
	}
	_, err := h.Embed(t.Context(), embed.Document, []string{"1 RETRY", "2 RETRY"})
	wantError(t, err, embed.Transient, "unavailable")
	var whole *embed.Error
	if errors.As(err, &whole); whole.RetryAfter != 20*time.Millisecond {
		t.Errorf("retry after %s, want 20ms", whole.RetryAfter)
	}
}

func TestEmbed_DoesNotBelieveAnswers(t *testing.T) {
	t.Parallel()
	for faults, code := range map[string]string{
		"wrong-count-every=2": "wrong_count",
		"wrong-dims-every=2":  "wrong_dims",
		"garbage-every=2":     "wrong_count",
		"huge-every=2":        "message_size",
	} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			h := faulty(t, faults)
			mustEmbed(t, h, "a", "b")
			pid := h.Pid()
			_, err := h.Embed(t.Context(), embed.Document, []string{"a", "b"})
			wantError(t, err, embed.Data, code)
			mustEmbed(t, h, "a", "b")
			if s := h.Stats(); s.BadAnswers != 1 || s.FailedCalls != 1 || s.Processes[0].Pid != pid {
				t.Errorf("stats %+v, want one bad answer and the same process", s)
			}
		})
	}
}

func TestEmbed_RestartsAfterManyBadAnswers(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "wrong-count-every=1"})
	o.MaxBadAnswers = 3
	h := open(t, o)
	if _, err := h.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := h.Pid()
	for range 5 { // calls whose batch is halved to find the bad text
		_, err := h.Embed(t.Context(), embed.Document, []string{"a", "b"})
		wantError(t, err, embed.Data, "wrong_count")
	}
	for range 3 {
		if h.Pid() != pid {
			t.Fatal("restarted before the third text")
		}
		_, err := h.Embed(t.Context(), embed.Document, []string{"a"})
		wantError(t, err, embed.Data, "wrong_count")
	}
	waitGone(t, pid)
	eventually(t, "the circuit opens", func() error {
		_, err := h.Embed(t.Context(), embed.Document, []string{"a"})
		if s := h.Stats(); s.Circuit == host.Closed {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
}

func TestEmbed_TakesCodesOfTheContract(t *testing.T) {
	t.Parallel()
	h := faulty(t, "unavailable-every=2;panic-on=PANIC")
	mustEmbed(t, h, "a")
	pid := h.Pid()
	_, err := h.Embed(t.Context(), embed.Document, []string{"b"})
	wantError(t, err, embed.Transient, "unavailable")
	var whole *embed.Error
	if errors.As(err, &whole); whole.RetryAfter != 20*time.Millisecond {
		t.Errorf("retry after %s, want 20ms", whole.RetryAfter)
	}
	_, err = h.Embed(t.Context(), embed.Document, []string{"a secret PANIC"})
	wantError(t, err, embed.Data, "internal")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error holds the text: %v", err)
	}
	if h.Pid() != pid {
		t.Errorf("process %d, want %d still", h.Pid(), pid)
	}
}

func TestEmbed_GivesUpWithItsCaller(t *testing.T) {
	t.Parallel()
	h := faulty(t, "hang-on=HANG")
	mustEmbed(t, h, "a")
	pid := h.Pid()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := h.Embed(ctx, embed.Document, []string{"HANG"})
	wantError(t, err, embed.Transient, "canceled")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error does not wrap the context's: %v", err)
	}
	mustEmbed(t, h, "a")
	if h.Pid() != pid {
		t.Errorf("process %d, want %d still", h.Pid(), pid)
	}
}

func TestEmbed_StartsOneProcessForAll(t *testing.T) {
	t.Parallel()
	h := faulty(t, "cost=100us/text")
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 8 {
				texts := []string{fmt.Sprint(i, j), "", fmt.Sprint(j, i, "x")}
				got, err := h.Embed(t.Context(), embed.Document, texts)
				if err != nil {
					t.Error(err)
					return
				}
				want := []embed.Result{
					{Vector: vector.Of(texts[0], 384), Tokens: 2},
					{Empty: true},
					{Vector: vector.Of(texts[2], 384), Tokens: got[2].Tokens},
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
			}
		})
	}
	wg.Wait()
	if s := h.Stats(); s.Starts != 1 || s.Calls != 32*8 || s.Texts != 3*32*8 {
		t.Errorf("stats %+v, want 1 start, 256 calls, 768 texts", s)
	}
}

func BenchmarkEmbed64(b *testing.B) {
	h, err := host.New(host.Options{Path: fake})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	var texts []string
	for i := range 64 {
		texts = append(texts, fmt.Sprintf(
			"text %d of about a hundred bytes, which is what a one-line description of a package has, more or less", i))
	}
	for b.Loop() {
		if _, err := h.Embed(b.Context(), embed.Document, texts); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(64*b.N), "us/text")
}
