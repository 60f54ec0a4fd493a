package client

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// TestTrust_AProvidersWordsAboutRowsAreNotRepeated: no error repeats a provider's message about a row in any form;
// status, code and length remain. Its message about the probe is shown, because that is not a row.
func TestTrust_AProvidersWordsAboutRowsAreNotRepeated(t *testing.T) {
	t.Parallel()
	const text, told = "Ärztin Ümit Çelik, diagnosis F32.1", "celik"
	quoted := strings.Trim(strconv.QuoteToASCII(text), `"`)
	for how, words := range map[string]string{
		"escaped": quoted, "escaped twice": strings.ReplaceAll(quoted, `\`, `\\`), "upper case": strings.ToUpper(text),
		"URL": url.QueryEscape(text), "base64": base64.StdEncoding.EncodeToString([]byte(text)), "told": told,
	} {
		body, err := json.Marshal(map[string]any{
			"error": map[string]string{"message": "cannot read " + words, "code": "bad_input"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for what, fault := range map[string]handler{
			"400": remotetest.Send(400, string(body)), "422": remotetest.Send(422, string(body)),
			"500": remotetest.Send(500, string(body)), "inside": remotetest.Send(200, string(body)),
			"plain": remotetest.Send(400, "cannot read "+words),
			"no HTTP": func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					panic(err)
				}
				_, _ = io.WriteString(conn, "cannot read "+words+"\r\n\r\n")
				_ = conn.Close()
			},
		} {
			ofRows := func(c *remotetest.Call) bool { return !slices.Contains(c.Texts, probeText) }
			s := &remotetest.Server{Dialect: "openai", Behave: when(ofRows, fault)}
			c := open(t, "openai", func(o *Options) { o.Patience = 50 * time.Millisecond }, listen(t, s))
			answers, err := c.Embed(t.Context(), sdk.Document, []string{text})
			for _, a := range answers {
				if a.Err != nil {
					err = a.Err
				}
			}
			if err == nil || strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "cannot read") {
				t.Errorf("%s, %s: %v", how, what, err)
			} else if strings.Contains(string(body), what) && !strings.Contains(err.Error(), what) {
				t.Errorf("%s, %s: it does not tell the status: %v", how, what, err)
			}
		}
	}
	s := &remotetest.Server{Dialect: "openai", Behave: during(1, always, remotetest.Send(400, `{"error":"this model is retired"}`))}
	c := open(t, "openai", func(o *Options) { o.Patience = 50 * time.Millisecond }, listen(t, s))
	if _, err := c.Embed(t.Context(), sdk.Document, []string{text}); err == nil ||
		!strings.Contains(err.Error(), "this model is retired") {
		t.Errorf("what it says of the probe: %v", err)
	}
}
