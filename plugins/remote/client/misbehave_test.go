package client

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

type handler = func(http.ResponseWriter, *http.Request)

// when answers the calls of which is returns true with another handler.
func when(is func(c *remotetest.Call) bool, h handler) func(http.ResponseWriter, *http.Request, *remotetest.Call) bool {
	return func(w http.ResponseWriter, r *http.Request, c *remotetest.Call) bool {
		if !is(c) {
			return false
		}
		h(w, r)
		return true
	}
}

// during answers the calls first to last with another handler.
func during(first, last int, h handler) func(http.ResponseWriter, *http.Request, *remotetest.Call) bool {
	return when(func(c *remotetest.Call) bool { return c.N >= first && c.N <= last }, h)
}

// refusing is a handler with an error in the form of the server's dialect.
func refusing(s *remotetest.Server, status int, code, message string) handler {
	return func(w http.ResponseWriter, _ *http.Request) { s.Fail(w, status, code, message) }
}

const always = 1 << 30

// TestFailuresThatPass: after two failures of any kind the third request succeeds, and the call has no error.
func TestFailuresThatPass(t *testing.T) {
	t.Parallel()
	faults := map[string]handler{
		"drop":             remotetest.Drop,
		"500":              remotetest.Page(500),
		"502":              remotetest.Page(502),
		"503":              remotetest.Send(503, `{"error":"busy"}`),
		"429":              remotetest.Send(429, `{"error":"slow down"}`),
		"429 in a 200":     remotetest.Send(200, `{"error":{"message":"slow down","code":429}}`),
		"error in a 200":   remotetest.Send(200, `{"error":"the upstream is gone"}`),
		"429 with seconds": remotetest.Send(429, `{}`, "Retry-After", "0.2"),
		"429 with ms":      remotetest.Send(429, `{}`, "Retry-After-Ms", "120"),
		"html":             remotetest.Page(200),
		"not json":         remotetest.Send(200, `{"data":[{"index":0,"embedding":[1,2`),
		"nothing":          remotetest.Send(200, ``),
		"empty object":     remotetest.Send(200, `{}`),
		"204":              remotetest.Send(204, ``),
	}
	for what, fault := range faults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everyDialect(t, func(t *testing.T, name string) {
				t.Helper()
				s := &remotetest.Server{Dialect: name, Behave: during(2, 3, fault)} // 1 is the probe
				texts := corpus(5)
				wantVectors(t, s, texts, mustEmbed(t, open(t, name, nil, listen(t, s)), texts))
			})
		})
	}
}

// parrot answers with something other than HTTP that repeats the key.
func parrot(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write([]byte(r.Header.Get("Authorization") + "\r\n\r\n"))
	_ = conn.Close()
}

// TestFailuresThatLast: the class that the host gets for a lasting failure.
func TestFailuresThatLast(t *testing.T) {
	t.Parallel()
	echo := func(status int) handler { // a message that repeats key and text
		return func(w http.ResponseWriter, r *http.Request) {
			message := "bad key " + r.Header.Get("Authorization") + r.Header.Get("X-Goog-Api-Key") + " for " + corpus(1)[0]
			body, _ := json.Marshal(map[string]any{"message": message, "detail": message, "error": message})
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}
	for what, test := range map[string]struct {
		h       handler
		want    codes.Code
		endless bool // no answer ever ends
	}{
		"drop":             {remotetest.Drop, codes.Unavailable, false},
		"stall":            {remotetest.Stall, codes.Unavailable, true},
		"slow loris":       {remotetest.Trickle, codes.Unavailable, true},
		"flood":            {remotetest.Flood, codes.Unavailable, true},
		"500":              {echo(500), codes.Unavailable, false},
		"502":              {echo(502), codes.Unavailable, false},
		"429":              {echo(429), codes.ResourceExhausted, false},
		"429 for a minute": {remotetest.Send(429, `{}`, "Retry-After", "60"), codes.ResourceExhausted, false},
		"no quota left": {
			remotetest.Send(429, `{"error":{"message":"pay","code":"insufficient_quota"}}`),
			codes.FailedPrecondition, false,
		},
		"400": {echo(400), codes.FailedPrecondition, false},
		"401": {echo(401), codes.FailedPrecondition, false},
		"402": {echo(402), codes.FailedPrecondition, false},
		"403": {echo(403), codes.FailedPrecondition, false},
		"404": {echo(404), codes.FailedPrecondition, false},
		"redirect": {
			remotetest.Send(307, ``, "Location", "http://169.254.169.254/latest/meta-data"),
			codes.FailedPrecondition, false,
		},
		"redirect elsewhere": {
			remotetest.Send(301, ``, "Location", "https://example.com/v1/embeddings"),
			codes.FailedPrecondition, false,
		},
		"page":           {remotetest.Page(200), codes.Unavailable, false},
		"json of others": {remotetest.Send(200, `{"hello":"world"}`), codes.Unavailable, false},
		"no HTTP":        {parrot, codes.Unavailable, false},
		"all too large": {
			remotetest.Send(400, `{"error":"the maximum number of tokens is 0"}`),
			codes.FailedPrecondition, false,
		},
		"null": {remotetest.Send(200, `null`), codes.Unavailable, false},
		"bare NaN": {
			remotetest.Send(200, `{"data":[{"embedding":[NaN]}],"embeddings":[[NaN]]}`), codes.Unavailable,
			false,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everyDialect(t, func(t *testing.T, name string) {
				t.Helper()
				s := &remotetest.Server{Dialect: name, Behave: during(1, always, test.h)}
				c := open(t, name, func(o *Options) {
					o.Patience = 300 * time.Millisecond
					if test.endless {
						o.Timeout = 100 * time.Millisecond
					}
				}, listen(t, s))
				texts := corpus(4)
				answers, err := c.Embed(t.Context(), sdk.Document, texts)
				if answers != nil {
					t.Errorf("got answers: %v", answers)
				}
				wantCode(t, err, test.want, texts...)
			})
		})
	}
}

// TestRetryAfterIsToldToTheHost: a pause that is too long to wait for is reported to the host, and the client observes
// it.
func TestRetryAfterIsToldToTheHost(t *testing.T) {
	t.Parallel()
	for what, headers := range map[string][]string{
		"seconds": {"Retry-After", "3600"},
		"date":    {"Retry-After", "Wed, 21 Oct 2026 08:28:00 GMT", "Date", "Wed, 21 Oct 2026 07:28:00 GMT"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &remotetest.Server{Dialect: "openai", Behave: during(1, always, remotetest.Send(429, `{}`, headers...))}
			c := open(t, "openai", nil, listen(t, s))
			for range 3 {
				_, err := c.Embed(t.Context(), sdk.Document, corpus(1))
				wantCode(t, err, codes.ResourceExhausted)
				if d := delayOf(t, err); d < 50*time.Minute || d > time.Hour {
					t.Errorf("the host is told to wait %s, want an hour", d)
				}
			}
			if n := len(s.Calls()); n != 1 {
				t.Errorf("%d requests were made, want 1: the server had asked for a pause", n)
			}
		})
	}
}

// spoiled spoils the answer to every request but the probe, or only to those with a certain text.
func spoiled(t *testing.T, name string, spoil func(c *remotetest.Call)) ([]sdk.Answer, *remotetest.Server, error) {
	t.Helper()
	s := &remotetest.Server{Dialect: name, Spoil: func(c *remotetest.Call) {
		if c.N > 1 && !strings.Contains(c.Texts[0], "lighthouse") {
			spoil(c)
		}
	}}
	c := open(t, name, func(o *Options) { o.Float = true }, listen(t, s))
	answers, err := c.Embed(t.Context(), sdk.Document, corpus(8))
	return answers, s, err
}

// TestPermutedAnswersAreSorted needs an index, which two dialects have.
func TestPermutedAnswersAreSorted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"openai", "voyage"} {
		answers, s, err := spoiled(t, name, func(c *remotetest.Call) {
			for i, j := 0, len(c.Numbers)-1; i < j; i, j = i+1, j-1 {
				c.Numbers[i], c.Numbers[j] = c.Numbers[j], c.Numbers[i]
				c.Index[i], c.Index[j] = c.Index[j], c.Index[i]
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		wantVectors(t, s, corpus(8), answers)
		answers, s, err = spoiled(t, name, func(c *remotetest.Call) { clear(c.Index) }) // answered in order
		if err != nil {
			t.Fatal(err)
		}
		wantVectors(t, s, corpus(8), answers)
	}
}

// TestOneBadVectorIsThatTextsOwn: the other texts keep their vectors.
func TestOneBadVectorIsThatTextsOwn(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]func(v []any){
		"null":  func(v []any) { v[2] = nil },
		"huge":  func(v []any) { v[2] = 1e300 },
		"zeros": func(v []any) { clearTo(v, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everyDialect(t, func(t *testing.T, name string) {
				t.Helper()
				answers, _, err := spoiled(t, name, func(c *remotetest.Call) {
					for i, text := range c.Texts {
						if text == corpus(8)[3] {
							bad(c.Numbers[i])
						}
					}
				})
				wantOnly(t, answers, err, 3)
			})
		})
	}
}

// TestOneTextThatBreaksItsRequestIsFound: halving finds it, and only that text gets an error.
func TestOneTextThatBreaksItsRequestIsFound(t *testing.T) {
	t.Parallel()
	is := func(c *remotetest.Call) bool { return slices.Contains(c.Texts, corpus(8)[3]) }
	for what, h := range map[string]handler{
		"400": remotetest.Send(400, `{"error":"what is this"}`), "500": remotetest.Page(500),
		"nonsense": remotetest.Send(200, `[[NaN]]`),
		"refused": remotetest.Send(400,
			`{"error":{"code":"content_filter","message":"no"},"message":"flagged by the content policy"}`),
		// a firewall in front of the server, which takes a text for an attack
		"refused by 403": remotetest.Page(403), "refused by 405": remotetest.Page(405),
		"refused by 302": remotetest.Send(302, ``, "Location", "https://example.com/blocked"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everyDialect(t, func(t *testing.T, name string) {
				t.Helper()
				s := &remotetest.Server{Dialect: name, Behave: when(is, h)}
				c := open(t, name, nil, listen(t, s))
				answers, err := c.Embed(t.Context(), sdk.Document, corpus(8))
				wantOnly(t, answers, err, 3)
				if class := answers[3].Err.Class; (class == sdk.Refused) != strings.HasPrefix(what, "refused") {
					t.Errorf("class %v", class)
				}
			})
		})
	}
	t.Run("wrong count", func(t *testing.T) {
		t.Parallel()
		everyDialect(t, func(t *testing.T, name string) {
			t.Helper()
			answers, _, err := spoiled(t, name, func(c *remotetest.Call) {
				if is(c) {
					c.Numbers, c.Index = append(c.Numbers, c.Numbers[0]), append(c.Index, 0)
				}
			})
			wantOnly(t, answers, err, 3)
		})
	})
}

// A text that a firewall refuses stops neither its pipeline nor the URLs of the other texts.
func TestP5_ATextThatAFirewallRefusesStaysAlone(t *testing.T) {
	t.Parallel()
	servers, urls := replicas(t, 2, 0)
	for _, s := range servers {
		s.Behave = when(func(c *remotetest.Call) bool { return slices.Contains(c.Texts, corpus(8)[3]) }, remotetest.Page(403))
	}
	c := open(t, "tei", func(o *Options) { o.Limits.Texts = 2; o.Patience = time.Millisecond }, urls...)
	for range 3 {
		answers, err := c.Embed(t.Context(), sdk.Document, corpus(8))
		wantOnly(t, answers, err, 3)
	}
	wantVectors(t, servers[0], corpus(3), mustEmbed(t, c, corpus(3)))
}

// A key that is revoked between two requests is a matter for a person: no text is blamed for it.
func TestP5_ARevokedKeyIsNoFaultOfTheTexts(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, name string) {
		t.Helper()
		s := &remotetest.Server{Dialect: name, Behave: during(3, always, remotetest.Page(403))}
		c := open(t, name, nil, listen(t, s))
		mustEmbed(t, c, corpus(1)) // the probe and one text
		answers, err := c.Embed(t.Context(), sdk.Document, corpus(8)[4:])
		if answers != nil {
			t.Errorf("got answers: %v", answers)
		}
		wantCode(t, err, codes.FailedPrecondition)
	})
}

// TestAnswersThatCannotBeBelieved: if all answers but the probe's are invalid, each text gets an error and none a
// vector.
func TestAnswersThatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"openai", "voyage"} {
		answers, _, err := spoiled(t, name, func(c *remotetest.Call) {
			for i := range c.Index {
				c.Index[i] = 7
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if a.Vector != nil || a.Err == nil {
				t.Errorf("%s: text %d was answered by a server that gives every vector the index 7", name, i)
			}
		}
	}
}

// TestAnotherWidthIsTheModelsFault, not that of the texts.
func TestAnotherWidthIsTheModelsFault(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, name string) {
		t.Helper()
		_, _, err := spoiled(t, name, func(c *remotetest.Call) {
			for i := range c.Numbers {
				if name == "tei-sparse" {
					c.Numbers[i] = append(c.Numbers[i], dims)
				}
				c.Numbers[i] = append(c.Numbers[i], 0.5)
			}
		})
		wantCode(t, err, codes.FailedPrecondition, corpus(8)...)
	})
}

// TestTheCallerGoesAway: a canceled call leaves nothing running, and does not count against the server.
func TestTheCallerGoesAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stalled atomic.Int32
	s := &remotetest.Server{Dialect: "openai", Behave: during(2, 2, func(w http.ResponseWriter, r *http.Request) {
		stalled.Add(1)
		cancel()
		remotetest.Stall(w, r)
	})}
	c := open(t, "openai", nil, listen(t, s))
	if _, err := c.Embed(ctx, sdk.Document, corpus(3)); err == nil {
		t.Fatal("no error")
	}
	if stalled.Load() != 1 {
		t.Fatalf("%d requests stalled, want 1", stalled.Load())
	}
	c.pool.mu.Lock()
	failures := c.pool.endpoints[0].failures
	c.pool.mu.Unlock()
	if failures != 0 {
		t.Errorf("%d failures are held against the URL for what the caller did", failures)
	}
	wantVectors(t, s, corpus(3), mustEmbed(t, c, corpus(3)))
}

// wantOnly checks that one text has an error and all others their vectors.
func wantOnly(t *testing.T, answers []sdk.Answer, err error, bad int) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if (a.Err != nil) != (i == bad) || (a.Vector != nil) == (i == bad) {
			t.Errorf("text %d: error %v, vector %t", i, a.Err, a.Vector != nil)
		}
		if a.Err != nil {
			wantQuiet(t, a.Err.Message, corpus(8))
			if a.Err.Class == sdk.RetryLater {
				t.Errorf("text %d would come again for ever", i)
			}
		}
	}
}

func clearTo(v []any, x any) {
	for i := range v {
		v[i] = x
	}
}
