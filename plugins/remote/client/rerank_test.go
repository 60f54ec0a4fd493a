package client

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

func everyReranker(t *testing.T, test func(t *testing.T, s *remotetest.Server, c func() *Client)) {
	t.Helper()
	for _, d := range dialect.All() {
		if !d.Reranks {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			s := &remotetest.Server{Dialect: d.Name}
			u := listen(t, s)
			test(t, s, func() *Client {
				return open(t, d.Name, func(o *Options) {
					o.Dims, o.DimsBy, o.Normalize, o.Pause, o.Patience = 1, ByModel, false, time.Millisecond, 0
				}, u)
			})
		})
	}
}

// TestRerank_EachTextHasItsOwnScore, in any order of the answer, and over several requests.
func TestRerank_EachTextHasItsOwnScore(t *testing.T) {
	t.Parallel()
	everyReranker(t, func(t *testing.T, s *remotetest.Server, open func() *Client) {
		t.Helper()
		c := open()
		m, err := c.Describe(t.Context())
		if err != nil || !m.Reranks || m.Dims != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		texts := append(corpus(100), " ", "")
		scores, err := c.Rerank(t.Context(), "which bridges", texts)
		if err != nil {
			t.Fatal(err)
		}
		worst := scores[0]
		for i, text := range texts[:100] {
			if want := s.Score("which bridges", text); scores[i] != want {
				t.Errorf("text %d: %g, want %g", i, scores[i], want)
			}
			worst = min(worst, scores[i])
		}
		if scores[100] != worst || scores[101] != worst {
			t.Errorf("texts with nothing in them: %v, want %g", scores[100:], worst)
		}
	})
}

// TestRerank_BelievesNoScoreOfAnotherText: an answer with wrong, missing or duplicate indexes is refused.
func TestRerank_BelievesNoScoreOfAnotherText(t *testing.T) {
	t.Parallel()
	everyReranker(t, func(t *testing.T, s *remotetest.Server, open func() *Client) {
		t.Helper()
		var spoil func(c *remotetest.Call)
		s.Spoil = func(c *remotetest.Call) { spoil(c) }
		for what, how := range map[string]func(c *remotetest.Call){
			"doubled": func(c *remotetest.Call) { c.Index[1] = 0 },
			"beyond":  func(c *remotetest.Call) { c.Index[0] = len(c.Texts) },
			"missing": func(c *remotetest.Call) { c.Index[0] = nil },
			"fewer": func(c *remotetest.Call) {
				c.Numbers, c.Index = c.Numbers[:len(c.Numbers)-1], c.Index[:len(c.Index)-1]
			},
			"no number": func(c *remotetest.Call) { c.Numbers[0][0] = nil },
		} {
			spoil = func(c *remotetest.Call) {
				if len(c.Texts) > 1 || what != "doubled" { // a single text cannot have another's index
					how(c)
				}
			}
			scores, err := open().Rerank(t.Context(), "q", []string{"a text", "another"})
			if what == "doubled" && err == nil { // sent alone, each is right
				if scores[0] != s.Score("q", "a text") || scores[1] != s.Score("q", "another") {
					t.Errorf("%s: %v", what, scores)
				}
				continue
			}
			if err == nil {
				t.Errorf("%s: %v", what, scores)
			}
		}
	})
}

// TestRerank_SaysNothingOfTheTexts in its errors, and distinguishes a refused key from a refused text.
func TestRerank_SaysNothingOfTheTexts(t *testing.T) {
	t.Parallel()
	everyReranker(t, func(t *testing.T, s *remotetest.Server, open func() *Client) {
		t.Helper()
		c := open()
		s.Behave = func(w http.ResponseWriter, _ *http.Request, c *remotetest.Call) bool {
			for _, text := range c.Texts {
				if strings.Contains(text, "poison") {
					s.Fail(w, http.StatusBadRequest, "invalid", "cannot read: "+c.Asked+" "+text)
					return true
				}
			}
			return false
		}
		_, err := c.Rerank(t.Context(), "secret query", []string{"fine", "poison secret text"})
		if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "secret") {
			t.Errorf("a text that is refused: %v", err)
		}
		s.Behave = during(1, always, refusing(s, http.StatusUnauthorized, "invalid_api_key", "no"))
		_, err = c.Rerank(t.Context(), "q", []string{"fine"})
		if status.Code(sdk.Status(err)) != codes.FailedPrecondition {
			t.Errorf("a refused key: %v", err)
		}
	})
}

// A server that is busy for one of several requests is no fault of a text.
func TestRerank_ABusyServerIsNoFaultOfTheTexts(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "jina-rerank", Behave: when(func(c *remotetest.Call) bool {
		return slices.Contains(c.Texts, "busy")
	}, remotetest.Send(http.StatusServiceUnavailable, "busy"))}
	c := open(t, "jina-rerank", func(o *Options) {
		o.Dims, o.DimsBy, o.Limits.Texts = 1, ByModel, 1
	}, listen(t, s))
	_, err := c.Rerank(t.Context(), "q", []string{"fine", "busy"})
	if code := status.Code(sdk.Status(err)); code != codes.ResourceExhausted {
		t.Errorf("%s: %v", code, err)
	}
}
