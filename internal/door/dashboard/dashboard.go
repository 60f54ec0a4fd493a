// Package dashboard shows the state of an installation in a browser, with forms for actions. The server renders the
// pages from admin.Service, like the API. The Service checks all rights. Every page works without a script; the script
// keeps pages up to date. Texts of rows are hidden unless a user who may see them asks for them.
package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// Options configure a dashboard.
type Options struct {
	Service *admin.Service
	Log     *slog.Logger
	Version string
	Base    string // path prefix of a reverse proxy, which all links begin with
}

// Dashboard is the handler of the pages. It is safe for concurrent use.
type Dashboard struct {
	o        Options
	database string // name of its database, if there are several
	pages    map[string]*template.Template
	assets   map[string]asset  // by names that hold a hash
	hashed   map[string]string // these names, by those of the files
	notices  notices
	handler  http.Handler
}

// New makes a dashboard. It starts nothing, and queries the database only for requests.
func New(o Options) *Dashboard {
	d := &Dashboard{o: o, database: o.Service.Name()}
	d.readAssets()
	d.readPages()
	d.handler = d.routes()
	return d
}

// policy restricts a page to resources of this server, without inline scripts and styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, a browser sends no Origin with forms
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	d.handler.ServeHTTP(w, r)
}

func (d *Dashboard) routes() http.Handler {
	mux := http.NewServeMux()
	for path, show := range map[string]func(*http.Request) (view, error){
		"/{$}": d.overview, "/pipelines": d.pipelines, "/pipelines/{name}": d.pipeline, "/row": d.row,
		"/search": d.search, "/queue": d.queue, "/errors": d.errors, "/dead-letters": d.deadLetters,
		"/system": d.system, "/models": d.models,
		"/checks": d.checks, "/audit": d.audit, "/config": d.config, "/help": d.help, "/help/{name...}": d.manual,
	} {
		mux.Handle("GET "+path, d.known(d.page(show)))
	}
	for before, now := range map[string]string{ // old addresses
		"/backfills": "/pipelines", "/replication": "/system", "/workers": "/system",
	} {
		mux.HandleFunc("GET "+before, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, d.at(now), http.StatusMovedPermanently)
		})
	}
	mux.Handle("POST /search", d.known(d.page(d.search)))
	mux.Handle("POST /act", d.known(http.HandlerFunc(d.act)))
	mux.Handle("GET /dead-letters/export", d.known(http.HandlerFunc(d.export)))
	mux.HandleFunc("GET /login", d.loginPage)
	mux.HandleFunc("POST /login", d.login)
	mux.HandleFunc("POST /logout", d.logout)
	mux.HandleFunc("POST /theme", d.theme)
	mux.HandleFunc("GET /assets/{name}", d.asset)
	mux.Handle("/", d.known(d.page(func(*http.Request) (view, error) { return view{}, errNoPage })))
	return mux
}

// known serves signed-in callers, and redirects others to the sign-in page.
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

// errNoPage means that there is nothing at an address.
var errNoPage = errors.New("there is no such page")

// page serves a view, or its error.
func (d *Dashboard) page(show func(*http.Request) (view, error)) http.Handler {
	// The queries of a page have limits of their own; this limit is for a hanging server.
	const patience = 20 * time.Second
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), patience, fmt.Errorf("the database took over %s", patience))
		defer cancel()
		v, err := show(r.WithContext(d.o.Service.Once(ctx)))
		if err != nil {
			v = d.failed(ctx, err)
		}
		d.render(w, r, v)
	})
}

// asset is a static file. Its name holds its hash, so that browsers can cache it.
type asset struct {
	content, kind string
}

func (d *Dashboard) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := d.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", a.kind)
	_, _ = w.Write([]byte(a.content))
}

// signingIn is the data of the sign-in page.
type signingIn struct {
	Itself bool // submit a token in the URL at once, without a click
	Wrong  string
}

// loginPage asks for a token. If another site led here, or the browser has a session, a token in the URL may be an
// attacker's, who wants the user to act in the attacker's name.
func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	from := r.Header.Get("Sec-Fetch-Site")
	_, known := gate.CallerOf(r.Context())
	d.render(w, r, view{
		page: "login", title: "Sign in", bare: true,
		data: signingIn{Itself: !known && (from == "none" || from == "same-origin")},
	})
}

// login exchanges a token for a session.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	cookie, err := gate.SignIn(r.Context(), r.PostFormValue("token"))
	if err != nil {
		p := d.o.Service.ProblemOf(r.Context(), err)
		d.render(w, r, view{page: "login", title: "Sign in", bare: true, status: p.Status, data: signingIn{Wrong: p.Detail}})
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, d.at("/"), http.StatusSeeOther)
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, gate.SignOut(r.Context()))
	http.Redirect(w, r, d.at("/login"), http.StatusSeeOther)
}

// theme stores the chosen theme in a cookie.
func (d *Dashboard) theme(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // it holds no secret, and is Secure where the connection is
		Name: themeCookie, Value: themeOf(r.PostFormValue("theme")), Path: cmp.Or(d.o.Base, "/"),
		MaxAge: int(themeAge.Seconds()), HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, d.at(back(r)), http.StatusSeeOther) //nolint:gosec // back leads to pages of ours alone
}
