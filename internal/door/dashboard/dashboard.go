// Package dashboard shows an installation to people in a browser, and lets those who may act on it: pages that the
// server renders, of what admin.Service says now, which is also behind the API. It decides nothing about who may: the
// Service does. Every page can be read without a script; the one that comes along keeps pages up to date. Texts of rows
// are hidden unless they are asked for by somebody who may see them.
package dashboard

import (
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

// Options say what is shown.
type Options struct {
	Service *admin.Service
	Log     *slog.Logger
	Version string
	Base    string // where a reverse proxy has put all pages: their links begin with it
}

// Dashboard is the handler of pages that package admin mounts. It is safe for concurrent use.
type Dashboard struct {
	o        Options
	database string // that it is of, where there are several
	pages    map[string]*template.Template
	assets   map[string]asset
	notices  notices
	handler  http.Handler
}

// New makes a dashboard. It starts nothing, and asks the database only while somebody looks.
func New(o Options) (*Dashboard, error) {
	d := &Dashboard{o: o, database: o.Service.Name()}
	var err error
	if d.assets, err = readAssets(); err != nil {
		return nil, err
	}
	if d.pages, err = d.readPages(); err != nil {
		return nil, err
	}
	d.handler = d.routes()
	return d, nil
}

// policy is what a browser may do with a page: what comes from here, and no script or style within the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin") // with none at all, a browser says of no form where it was
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
	for before, now := range map[string]string{ // addresses that somebody may have kept
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

// errNoPage means that there is nothing at an address.
var errNoPage = errors.New("there is no such page")

// page shows a view, or why there is none.
func (d *Dashboard) page(show func(*http.Request) (view, error)) http.Handler {
	// What a page asks is bounded in itself; this is for a server that stands still.
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

// asset is a file that pages need. Its name holds a hash of it, so that browsers keep it.
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
