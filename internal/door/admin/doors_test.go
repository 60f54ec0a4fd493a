package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// from returns a connection to the listener from a local address.
func (f *fixture) from(address string) net.Conn {
	f.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(f.t.Context(), "tcp", strings.TrimPrefix(f.base, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestTrust_StrangersWhoHoldRequestsCloseNothing: clients without a token that send endless bodies, or do not read
// answers, take no slots of clients with one, nor of those at other addresses, and are disconnected soon.
func TestTrust_StrangersWhoHoldRequestsCloseNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ *fixture, o *gate.Options) {
		o.Pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = w.Write(make([]byte, 16<<20)) // more than an unread connection buffers
			}
			_, _ = fmt.Fprintf(w, "page for %s", r.PostFormValue("token"))
		})
	})
	signIn := func(address, body string) (int, string) {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return f.from(address), nil },
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.base+"/login", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		content, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(content)
	}
	for name, request := range map[string]string{
		"body": "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
			"Content-Length: 9\r\n\r\nt",
		"answer": "GET /login HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		for _, holder := range []string{"127.0.0.1", "127.0.0.2"} {
			hold := func(n int) {
				for range n {
					// A request beyond the limit of an address is ended while it is written.
					_, _ = io.WriteString(f.from(holder), request)
				}
			}
			hold(300) // more than the limit of connections
			testenv.Eventually(t, waitFor, func() (bool, string) {
				hold(10) // on a busy machine some end before the last of them begins
				status, said := signIn(holder, "token=x")
				return status == http.StatusTooManyRequests, said
			})
		}
		gets[admin.Status](f, "operator", "/api/v1/status")
		if status, said := signIn("127.0.0.3", "token=x"); status != http.StatusOK || said != "page for x" {
			t.Errorf("%s: another stranger: %d %s", name, status, said)
		}
		testenv.Eventually(t, waitFor, func() (bool, string) { // none of the held ones has ended
			status, said := signIn("127.0.0.2", "token=x")
			return status == http.StatusOK, said
		})
	}
	if status, said := signIn("127.0.0.3", "token="+strings.Repeat("x", 1<<16)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body of a stranger: %d %s", status, said)
	}
}

// TestTrust_StrangersLearnNoNamesOfDatabases: the sign-in page is the same for each name.
func TestTrust_StrangersLearnNoNamesOfDatabases(t *testing.T) {
	t.Parallel()
	page := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	f := newFixture(t, func(_ *fixture, o *gate.Options) {
		o.Pages = page("of none")
		o.Of = func(_ *http.Request, name string) (*gate.API, http.Handler, *gate.Problem) {
			switch name {
			case "":
				return nil, nil, nil
			case "there":
				return &gate.API{}, page("of there"), nil
			}
			return nil, nil, gate.NoDatabase(name)
		}
	})
	for _, name := range []string{"", "?database=there", "?database=none"} {
		if a := f.ask("", http.MethodGet, "/login"+name, ""); a.body != "of none" {
			t.Errorf("%q: %d %s", name, a.status, a.body)
		}
	}
}

// TestTrust_ATokenOfADatabaseSeesNothingOfTheProcess: plugins and models are used by other databases, too.
func TestTrust_ATokenOfADatabaseSeesNothingOfTheProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.refused(http.StatusForbidden, "scope", "tenant", http.MethodGet, "/api/v1/plugins", "")
	if now := gets[admin.Status](f, "tenant", "/api/v1/status"); len(now.Pipelines) != 2 || now.Program.NotReady != nil {
		t.Errorf("its database: %d pipelines, not ready: %q", len(now.Pipelines), now.Program.NotReady)
	}
	if now := gets[admin.Status](f, "viewer", "/api/v1/status"); now.Program.NotReady == nil {
		t.Error("the plugin of the fixture is not ready, and a viewer of all is not told")
	}
}

// TestTrust_ASearchTellsNoMoreThanTheCallerMaySee: searches by administrators do not bypass policies of a table, and a
// caller that may not see texts cannot confirm a guess of one.
func TestTrust_ASearchTellsNoMoreThanTheCallerMaySee(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(f *fixture, _ *gate.Options) {
		f.embed = func(context.Context, *pipeline.Pipeline, string) ([]float32, error) { return []float32{2, 1, 0}, nil }
	})
	f.embedded()
	f.pool = f.connect(testenv.Owner) // its policies do not apply to it
	f.listen()
	const path, row = "/api/v1/search", "/api/v1/pipelines/docs/rows/1?text=true"
	question := func(more string) string { return `{"pipeline": "docs", "text": "CANARY 2"` + more + `}` }
	found := func(body string) []search.Hit {
		t.Helper()
		return decoded[admin.Answer](f, body, f.ask("operator", http.MethodPost, path, body)).Hits
	}
	if hits := found(question("")); len(hits) != 4 || hits[0].Key != "2" || hits[0].Distance != nil {
		t.Errorf("who may not see texts is told how near they are: %+v", hits)
	}
	f.refused(http.StatusForbidden, "row_text", "operator", http.MethodPost, path, question(`, "hybrid": true`))
	f.config.Admin.ShowRowText = true
	f.listen()
	if hits := found(question(`, "hybrid": true`)); len(hits) != 4 || hits[0].Score == nil || hits[0].Distance == nil {
		t.Errorf("who may see texts: %+v", hits)
	}
	f.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
	for _, more := range []string{"", `, "hybrid": true`, `, "show_text": true`} {
		f.refused(http.StatusForbidden, "row_security", "operator", http.MethodPost, path, question(more))
	}
	f.refused(http.StatusForbidden, "row_security", "operator", http.MethodGet, row, "")
}

// TestTrust_TheStoryOfARowPassesNoPolicy: of a row that policies may hide from the caller, it tells neither the hash of
// the text nor its length.
func TestTrust_TheStoryOfARowPassesNoPolicy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.config.Admin.ShowRowText = true
	f.pool = f.connect(testenv.Owner) // policies do not apply to it
	f.listen()
	told := func(who string) explain.Row {
		t.Helper()
		return gets[explain.Story](f, who, "/api/v1/pipelines/docs/rows/1").Row
	}
	if row := told("operator"); row.Characters == nil || row.Bytes == 0 || row.TextHash == "" {
		t.Errorf("without a policy: %+v", row)
	}
	f.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
	for _, who := range []string{"viewer", "operator"} {
		if row := told(who); !row.Exists || row.Characters != nil || row.Bytes != 0 || row.TextHash != "" {
			t.Errorf("%s: %+v", who, row)
		}
	}
}

// TestTrust_EventsEndWithTheSession: events end at sign-out, even if nothing happens.
func TestTrust_EventsEndWithTheSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	opened := f.ask("viewer", http.MethodPost, "/api/v1/session", "")
	cookie, _, _ := strings.Cut(opened.header.Get("Set-Cookie"), ";")
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, response)
	}
	defer func() { _ = response.Body.Close() }()
	if a := f.ask("", http.MethodDelete, "/api/v1/session", "", "Cookie", cookie); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("it did not end: %v", err)
	}
}
