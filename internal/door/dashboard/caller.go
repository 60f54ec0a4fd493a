package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

const (
	themeCookie = "embedsidecar_theme"
	themeAge    = 365 * 24 * time.Hour
	noticeAge   = time.Minute
	mostNotices = 100
)

// notice is what became of an action.
type notice struct {
	Text  string
	Wrong bool
	until time.Time
}

// notices wait for the next page of who had something done.
type notices struct {
	mu   sync.Mutex
	list map[string]notice // by name of the caller
}

func (n *notices) tell(who gate.Caller, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list == nil || len(n.list) >= mostNotices {
		n.list = map[string]notice{}
	}
	n.list[who.Name] = notice{Text: text, until: time.Now().Add(noticeAge)}
}

// told returns what waits, once.
func (n *notices) told(who gate.Caller) []notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.list[who.Name]
	delete(n.list, who.Name)
	if !ok || time.Now().After(found.until) {
		return nil
	}
	return []notice{found}
}

// known lets those in whom a token names, and leads everybody else to where one is asked for.
func (d *Dashboard) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, ok := gate.CallerOf(r.Context())
		switch {
		case ok:
			next.ServeHTTP(w, r)
		case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, d.at("/login"), http.StatusSeeOther)
		default:
			http.Error(w, "sign in first: "+d.at("/login"), http.StatusUnauthorized)
		}
	})
}

func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	d.render(w, r, view{page: "login", title: "Sign in", bare: true})
}

// login takes a token and gives the browser a session for it.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	cookie, err := gate.SignIn(r.Context(), r.PostFormValue("token"))
	if err != nil {
		p := d.o.Service.ProblemOf(r.Context(), err)
		d.render(w, r, view{page: "login", title: "Sign in", bare: true, status: p.Status, data: p.Detail})
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, d.at("/"), http.StatusSeeOther)
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, gate.SignOut(r.Context()))
	http.Redirect(w, r, d.at("/login"), http.StatusSeeOther)
}

// theme keeps which colours somebody likes.
func (d *Dashboard) theme(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // it holds no secret, and is Secure where the connection is
		Name: themeCookie, Value: themeOf(r.PostFormValue("theme")), Path: cmp.Or(d.o.Base, "/"),
		MaxAge: int(themeAge.Seconds()), HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, d.at(back(r)), http.StatusSeeOther) //nolint:gosec // back leads to pages of ours alone
}

func themeOf(s string) string {
	if s == "light" || s == "dark" {
		return s
	}
	return "system"
}

// back returns the page of ours that a form was on; the first page if it names none.
func back(r *http.Request) string {
	to := r.PostFormValue("back")
	u, err := url.Parse(to) // refuses tabs and the like, which browsers leave out
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsFunc(to, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }) {
		to = "/"
	}
	return to
}
