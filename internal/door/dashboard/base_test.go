package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// prefix is the base path of a dashboard behind a proxy, beside other pages.
const prefix = "/tools/embedsidecar"

// behind runs a proxy that serves a server under prefix, and keeps (brought) or strips the prefix.
func behind(t *testing.T, server string, brought bool) (address string) {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	var handler http.Handler = proxy
	if !brought {
		handler = http.StripPrefix(prefix, proxy)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", handler)
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	return front.URL + prefix
}

// to matches the targets of links, forms and files of a page.
var to = regexp.MustCompile(`(?:href|src|action)="(/[^"]*)"`)

// Behind a proxy, no link of a page leaves the prefix, whether the proxy strips it or not.
func TestPages_BehindAProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	server, _ := r.serve(r.person, options{texts: true, base: prefix})
	for _, brought := range []bool{true, false} {
		t.Run(fmt.Sprintf("the prefix is brought along: %t", brought), func(t *testing.T) {
			t.Parallel()
			b := r.signIn(behind(t, server, brought), "olga")
			b.t = t
			for path := range pages {
				if path == "/config" {
					continue
				}
				links := to.FindAllStringSubmatch(b.get(http.StatusOK, path), -1)
				if len(links) < 9 { // the menu and the files of a page
					t.Errorf("%s has %d links", path, len(links))
				}
				for _, link := range links {
					if !strings.HasPrefix(link[1], prefix+"/") {
						t.Errorf("%s leads to %s", path, link[1])
					}
				}
			}
			page := b.post(http.StatusOK, "/act", "do", "requeue", "pipeline", "public.articles", "key", "1", "back", "/help")
			if !strings.Contains(page, "What states mean") {
				t.Errorf("an action leads to\n%s", page)
			}
			if api := b.get(http.StatusOK, "/api/v1/session"); !strings.Contains(api, "olga") {
				t.Errorf("the API says %s", api)
			}
			if page := b.get(http.StatusOK, "/openapi.json"); !strings.Contains(page, `"url": "`+prefix+`"`) {
				t.Error("the document of the API does not say where its paths begin")
			}
		})
	}
	b := r.signIn(server, "") // also without the proxy
	if page := b.get(http.StatusOK, prefix); !strings.Contains(page, `name="token"`) {
		t.Errorf("without the slash:\n%s", page)
	}
	b.post(http.StatusOK, prefix+"/login", "token", "vera")
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	if sent := b.http.Jar.Cookies(at); len(sent) > 0 {
		t.Errorf("what is not ours gets %v", sent)
	}
	b.get(http.StatusOK, prefix+"/queue")
	if page := b.get(http.StatusOK, prefix+"er/queue"); !strings.Contains(page, `name="token"`) {
		t.Errorf("the session goes beyond the prefix:\n%s", page)
	}
	if cookie := signedIn(t, server); cookie.Secure || cookie.Path != prefix {
		t.Errorf("over HTTP: %v", cookie)
	}
	if cookie := signedIn(t, server, "X-Forwarded-Proto", "https"); !cookie.Secure {
		t.Errorf("through a proxy with HTTPS: %v", cookie)
	}
}

// signedIn returns the session cookie for a token, with headers that a proxy adds.
func signedIn(t *testing.T, server string, header ...string) *http.Cookie {
	t.Helper()
	form := strings.NewReader("token=vera")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+prefix+"/login", form)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if cookies := answer.Cookies(); answer.StatusCode == http.StatusSeeOther && len(cookies) == 1 {
		return cookies[0]
	}
	t.Fatalf("%s, %v", answer.Status, answer.Header)
	return nil
}

// A browser behind a proxy signs in, gets events, and acts.
func TestBrowser_BehindAProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	server, _ := r.serve(r.person, options{base: prefix})
	c := newChrome(t, strings.TrimSuffix(behind(t, server, false), prefix))
	c.as(looks[0], 0)
	c.open(prefix + "/login#token=ada")
	c.until("signed in", `document.querySelector("#live-pipelines")`)
	c.open(prefix + "/pipelines/public.tickets")
	c.until("live", `document.querySelector("#pulse").dataset.state === "live"`)
	c.do(chromedp.Click(chromedp.CSS(`main form:has(input[value=pause]) button`)))
	testenv.Eventually(t, browserTimeout, func() (bool, string) {
		n := testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.pipeline WHERE NOT enabled")
		return n == 1, fmt.Sprint(n, " are paused")
	})
	c.until("back", fmt.Sprintf(`location.pathname === %q && document.querySelector("main .notice")`,
		prefix+"/pipelines/public.tickets"))
	testenv.Eventually(t, browserTimeout, func() (bool, string) { // a busy machine may type too slowly for the page
		c.do(chromedp.KeyEvent("g"), chromedp.KeyEvent("q"))
		at, err := tried[string](c, "location.pathname")
		return at == prefix+"/queue", fmt.Sprint("by keys at ", at, " ", err)
	})
	// A link on another site fills in the form, but does not submit it.
	c.do(chromedp.Navigate("data:text/html,<a href='"+c.at+prefix+"/login%23token=vera'>x</a>"),
		chromedp.Click(chromedp.CSS("a")))
	c.until("asked", `document.querySelector("#login [name=token]")?.value === "vera" && !location.hash`)
	c.do(chromedp.Click(chromedp.CSS("#login button")))
	c.until("signed in", `document.querySelector("#live-pipelines") && document.body.innerText.includes("vera")`)
}
