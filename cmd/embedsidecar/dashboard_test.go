package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// The printed address admits its user, only with the token. The API works, and actions change the database. No sidecar
// is needed, and the command ends when told to.
func TestDashboard_LetsInWhoHasItsAddress(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	d := s.background("dashboard")
	link := regexp.MustCompile(`http:\S+/login#token=\S+`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return link.MatchString(d.text()), d.text() })
	at, err := url.Parse(link.FindString(d.text()))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(at.Fragment, "token=")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	defer client.CloseIdleConnections()
	send := func(want int, path string, form url.Values) string {
		t.Helper()
		method := http.MethodGet
		if form != nil {
			method = http.MethodPost
		}
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+at.Host+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Accept", "text/html")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != want {
			t.Fatalf("%s %s: %v, status %d, want %d:\n%s", method, path, err, answer.StatusCode, want, body)
		}
		return string(body)
	}
	send(http.StatusUnauthorized, "/api/v1/status", nil)
	send(http.StatusUnauthorized, "/login", url.Values{"token": {"guess"}})
	s.has(send(http.StatusOK, "/", nil), "Sign in")
	s.has(send(http.StatusOK, "/login", url.Values{"token": {token}}), "public.docs", "no sidecar")
	s.has(send(http.StatusOK, "/api/v1/status", nil), `"public.docs"`)
	s.has(send(http.StatusOK, "/search", url.Values{"q": {"title"}, "pipeline": {"public.docs"}}),
		"SELECT * FROM embedsidecar.search(")
	s.has(send(http.StatusOK, "/checks", nil), "embedder")
	send(http.StatusOK, "/act", url.Values{"do": {"pause"}, "pipeline": {"public.docs"}})
	if n := testenv.Value[int64](s.db, "SELECT count(*) FROM embedsidecar.pipeline WHERE NOT enabled"); n != 1 {
		t.Errorf("%d pipelines are paused", n)
	}
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-d.done
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("told to end, it ended with %d:\n%s", code, d.text())
	}
	_, stderr := s.run(2, "dashboard", "--admin-listen", "0.0.0.0:0")
	s.has(stderr, "is not a loopback address")
}
