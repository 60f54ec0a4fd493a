package client

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// TestATextAboveEveryLimitStandsAlone: it is sent alone, and the server decides.
func TestATextAboveEveryLimitStandsAlone(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "openai"}
	c := open(t, "openai", func(o *Options) { o.Limits = dialect.Limits{Texts: 10, Tokens: 50, Bytes: 200} }, listen(t, s))
	texts := append(corpus(3), strings.Repeat("long ", 1000))
	wantVectors(t, s, texts, mustEmbed(t, c, texts))
}

// TestTooLargeIsHalvedAndLearned: a lower limit than documented is learned once.
func TestTooLargeIsHalvedAndLearned(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		body  string
		large func(c *remotetest.Call) bool
	}{
		"bytes": {"nginx says no", func(c *remotetest.Call) bool { return len(c.Body) > 3000 }},
		"count": {
			`{"error":"batch size 128 > maximum allowed batch size 20","error_type":"Validation"}`,
			func(c *remotetest.Call) bool { return len(c.Texts) > 20 },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			refuse := remotetest.Send(http.StatusRequestEntityTooLarge, test.body)
			s := &remotetest.Server{Dialect: "openai", Behave: when(test.large, refuse)}
			c := open(t, "openai", nil, listen(t, s))
			texts := corpus(128)
			wantVectors(t, s, texts, mustEmbed(t, c, texts))
			before := len(s.Calls())
			wantVectors(t, s, texts, mustEmbed(t, c, texts))
			for _, call := range s.Calls()[before:] {
				if test.large(call) {
					t.Errorf("a request of %d texts was made again after it had proved too large", len(call.Texts))
				}
			}
		})
	}
}

// TestP5_ARequestAboveTheLimitOfAMinuteIsHalved: OpenAI refuses a request of more tokens than the account has in a
// minute as it refuses too many requests, but waiting never helps.
func TestP5_ARequestAboveTheLimitOfAMinuteIsHalved(t *testing.T) {
	t.Parallel()
	const body = `{"error":{"message":"Request too large for m on tokens per min (TPM): Limit %d, Requested %d. ` +
		`The input or output tokens must be reduced.","type":"tokens","code":"rate_limit_exceeded"}}`
	texts := corpus(64)
	for what, test := range map[string]struct{ texts, limit int }{"halved": {64, 200}, "alone": {1, 1}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			above := func(c *remotetest.Call) bool { return tokensOf(c.Texts) > test.limit }
			s := &remotetest.Server{Dialect: "openai"}
			s.Behave = func(w http.ResponseWriter, r *http.Request, c *remotetest.Call) bool {
				if !above(c) {
					return false
				}
				remotetest.Send(http.StatusTooManyRequests, fmt.Sprintf(body, test.limit, tokensOf(c.Texts)))(w, r)
				return true
			}
			c := open(t, "openai", nil, listen(t, s))
			if test.texts == 1 { // it is not cut for the account's sake
				_, err := c.Embed(t.Context(), embed.Document, texts[:1])
				if err == nil || !strings.Contains(err.Error(), "429") {
					t.Errorf("a text above the limit: %v", err)
				}
				return
			}
			wantVectors(t, s, texts, mustEmbed(t, c, texts))
			before := len(s.Calls())
			wantVectors(t, s, texts, mustEmbed(t, c, texts))
			if again := s.Calls()[before:]; slices.ContainsFunc(again, above) {
				t.Error("a request above the limit was made again after the limit was known")
			}
		})
	}
}

func tokensOf(texts []string) (sum int) {
	for _, text := range texts {
		sum += tokens(text)
	}
	return sum
}

// TestP8_AnAnsweredHalfIsNotAskedForAgain: a request that is too large is halved, and one half meets a rate limit. The
// other half is paid for, so its answers are kept.
func TestP8_AnAnsweredHalfIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	texts := corpus(8)
	s := &remotetest.Server{Dialect: "openai", Behave: func(w http.ResponseWriter, r *http.Request, c *remotetest.Call) bool {
		switch {
		case len(c.Texts) > 4:
			remotetest.Send(http.StatusRequestEntityTooLarge, "too large")(w, r)
		case slices.Contains(c.Texts, texts[7]):
			remotetest.Send(http.StatusTooManyRequests, "later")(w, r)
		default:
			return false
		}
		return true
	}}
	c := open(t, "openai", nil, listen(t, s))
	answers, err := c.Embed(t.Context(), embed.Document, texts)
	if err != nil {
		t.Fatal(err)
	}
	wantVectors(t, s, texts[:4], answers[:4])
	for i, a := range answers[4:] {
		if a.Err == nil || a.Err.Class != sdk.RetryLater {
			t.Errorf("text %d is answered with %v, want that it is retried later", i+4, a.Err)
		}
	}
}

// What was answered before the quota ended is paid for, and kept. The next call then says what is wrong.
func TestP8_WhatIsAnsweredBeforeTheQuotaEndsIsKept(t *testing.T) {
	t.Parallel()
	texts := corpus(8)
	s := &remotetest.Server{Dialect: "openai", Behave: when(func(c *remotetest.Call) bool {
		return slices.Contains(c.Texts, texts[7])
	}, remotetest.Send(429, `{"error":{"message":"pay","code":"insufficient_quota"}}`))}
	c := open(t, "openai", func(o *Options) { o.Limits.Texts = 2 }, listen(t, s))
	answers, err := c.Embed(t.Context(), embed.Document, texts)
	if err != nil {
		t.Fatal(err)
	}
	wantVectors(t, s, texts[:6], answers[:6])
	for i, a := range answers[6:] {
		if a.Err == nil || a.Err.Class != sdk.RetryLater {
			t.Errorf("text %d is answered with %v, want that it is retried later", i+6, a.Err)
		}
	}
	_, err = c.Embed(t.Context(), embed.Document, texts[6:])
	wantCode(t, err, codes.FailedPrecondition, texts...)
}

// A server that counts padding must not make the host refuse its answers.
func TestShare_NoMoreTokensThanATextCanHave(t *testing.T) {
	t.Parallel()
	answers := make([]sdk.Answer, 2)
	share(2*8192, []string{"a", "a longer text"}, answers)
	if n := answers[0].Tokens + answers[1].Tokens; n != 4*14 || answers[0].Tokens < 1 {
		t.Errorf("%d tokens: %+v", n, answers)
	}
	share(5, []string{"a", "a longer text"}, answers)
	if n := answers[0].Tokens + answers[1].Tokens; n != 5 {
		t.Errorf("%d tokens, want 5", n)
	}
}

// window makes a server refuse texts of more than a number of words.
func window(words int) func(w http.ResponseWriter, r *http.Request, c *remotetest.Call) bool {
	return func(w http.ResponseWriter, r *http.Request, c *remotetest.Call) bool {
		for _, text := range c.Texts {
			if n := len(strings.Fields(text)); n > words {
				remotetest.Send(400, fmt.Sprintf(
					`{"error":{"message":"This model's maximum context length is %d tokens, however you requested %d","code":"context_length_exceeded"}}`, words, n))(w, r)
				return true
			}
		}
		return false
	}
}

// hasLong reports whether a request has a text of more than a thousand bytes.
func hasLong(c *remotetest.Call) bool {
	return slices.ContainsFunc(c.Texts, func(text string) bool { return len(text) > 1000 })
}

func TestTooLongTexts(t *testing.T) {
	t.Parallel()
	long := "First " + strings.Repeat("and so on ", 500) + "last"
	texts := append(corpus(6), long)
	for how, keeps := range map[dialect.Truncate]string{
		dialect.CutEnd: "First", dialect.CutStart: "last",
		dialect.CutNever: "",
	} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			s := &remotetest.Server{Dialect: "openai", Behave: window(100)}
			c := open(t, "openai", func(o *Options) { o.Truncate = how }, listen(t, s))
			answers := mustEmbed(t, c, texts)
			wantVectors(t, s, texts[:6], answers[:6])
			a := answers[6]
			if how == dialect.CutNever {
				if a.Err == nil || a.Err.Class != sdk.TooLong {
					t.Errorf("got %+v, want too long", a.Err)
				}
				return
			}
			if a.Err != nil || !a.Truncated {
				t.Fatalf("error %v, truncated %t", a.Err, a.Truncated)
			}
			var kept string
			for _, call := range s.Calls() {
				if len(call.Numbers) == 1 && strings.Contains(call.Texts[0], "and so on") {
					kept = call.Texts[0]
				}
			}
			if !strings.Contains(kept, keeps) || embed.Cosine(a.Vector, s.Vector(kept, false, dims)) < 0.99 {
				t.Errorf("the vector is not that of a text that keeps %q", keeps)
			}
			if again := mustEmbed(t, c, texts)[6]; embed.Cosine(again.Vector, a.Vector) < 0.9999 {
				t.Error("the same text was cut in another way")
			}
		})
	}
}

// If a server cuts texts itself, MaxTokens is not in the fingerprint. So if the client has to cut, the place must not
// depend on MaxTokens.
func TestTooLongTexts_CutTheSameForOneFingerprint(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("and so on ", 300)
	vectors, fingerprints := map[string]bool{}, map[string]bool{}
	for _, limit := range []int{0, 10, 200} {
		s := &remotetest.Server{
			Dialect: "ollama",
			Behave:  when(hasLong, remotetest.Send(400, `{"error":"the input length exceeds the context length"}`)),
		}
		c := open(t, "ollama", func(o *Options) { o.MaxTokens = limit }, listen(t, s))
		m, err := c.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answer := mustEmbed(t, c, []string{text})[0]
		if answer.Err != nil || !answer.Truncated {
			t.Errorf("limit %d: error %v, truncated %t", limit, answer.Err, answer.Truncated)
		}
		vectors[fmt.Sprint(answer.Vector)], fingerprints[m.Fingerprint] = true, true
	}
	if len(fingerprints) != 1 || len(vectors) != 1 {
		t.Errorf("%d fingerprints, %d vectors of one text", len(fingerprints), len(vectors))
	}
}

// In each form of the error, a text that is too long is cut, and does not fail.
func TestTooLongTexts_InEveryForm(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]handler{
		// though it was asked to cut
		"ollama": remotetest.Send(400, `{"error":"the input length exceeds the context length"}`),
		"plain":  remotetest.Send(400, "This model's maximum context length is 512 tokens"),
		"status 500": remotetest.Send(500,
			`{"error":{"code":500,"message":"input is too large to process. increase the physical batch size (current batch size: 512)","type":"server_error"}}`),
		"inside of 200": remotetest.Send(200, `{"error":{"message":"maximum context length is 512 tokens","code":400}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := "openai"
			if name == "ollama" {
				of = name
			}
			s := &remotetest.Server{Dialect: of, Behave: when(hasLong, refuse)}
			c := open(t, of, nil, listen(t, s))
			texts := append(corpus(3), strings.Repeat("and so on ", 300))
			answers := mustEmbed(t, c, texts)
			wantVectors(t, s, texts[:3], answers[:3])
			if a := answers[3]; a.Err != nil || !a.Truncated {
				t.Errorf("error %v, truncated %t", a.Err, a.Truncated)
			}
			if got := c.sizes.get().Texts; got != c.o.Limits.Texts {
				t.Errorf("it was taken for too many texts: %d at a time now", got)
			}
		})
	}
}
